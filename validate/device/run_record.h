// What one measured run of a schedule holds: who ran what on which hardware, when every op began and ended, how long
// undisturbed steps took, what memory was held, and how far the numbers were off.
//
// Units: integer picoseconds (int64, as sim/core/sim_time.h; measured ones have the resolution of the device's events)
// and bytes. Times of an op count from the start of its rank's step in the same repeat. Every list of times has one
// entry a repeat, in order; warm-up repeats are not kept. An op is known by (rank, segment, index, chunk, layer), as
// OpRecord (sim/timeline) knows it, and by `position` in the rank's program; empty ops leave no record.
// The JSON form is deterministic: the same record gives the same bytes; reading it back gives an equal record.
// Ignores: predictions, thresholds, verdicts on time (validate/report).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sim/core/error.h"
#include "sim/schedule/schedule.h"

namespace longhaul {

// How ranks lay on devices.
enum class RankPlacement : std::uint8_t {
  // All ranks on one device. Op and rank times are of each rank run alone after the others; exchanges are copies within
  // the device, so times of collectives say nothing about links (MeasuredOp::communication).
  kVirtual,
  kReal,  // one device a rank, collectives by NCCL
};
const char* to_string(RankPlacement placement);

struct HardwareInfo {
  std::string device;  // "NVIDIA H200", or "host" for the emulation on the CPU
  std::int32_t devices = 1;
  std::int64_t device_memory_bytes = 0;
  std::int32_t multiprocessors = 0;
  std::string compute_capability;                 // "9.0"
  std::string driver, cuda, cublas, cudnn, nccl;  // versions; empty: not used or not known
  std::int32_t sm_clock_mhz = 0;                  // highest the device allows
  std::int32_t memory_clock_mhz = 0;
  std::int32_t sm_clock_before_mhz = 0;  // read right before and after the timed repeats; 0: not known
  std::int32_t sm_clock_after_mhz = 0;
  std::int32_t temperature_before_c = 0, temperature_after_c = 0;
  std::int32_t power_before_w = 0, power_after_w = 0;
  bool operator==(const HardwareInfo&) const = default;
};

// Which schedule it was. `fingerprint` is of the schedule's ops and shapes (schedule_fingerprint): a prediction may be
// laid over a run only if both are of the same schedule.
struct RunIdentity {
  std::string study, study_case, strategy;  // names; strategy is the entry's label
  std::string study_file;                   // its name; of a shipped study with its folder in the data
  std::vector<std::string> reductions;      // what was made smaller than the study says, in words; empty: nothing
  std::uint64_t fingerprint = 0;
  std::uint64_t seed = 0;  // of parameters
  std::string date;        // "2026-11-29", UTC
  std::string git;         // commit of Longhaul, "-dirty" behind it if it was; empty: not known
  std::string version;     // of Longhaul
  bool operator==(const RunIdentity&) const = default;
};

struct MeasuredOp {
  std::int32_t rank = 0;
  std::int32_t position = 0;  // in the rank's program, empty ops counted
  StreamId stream = kComputeStream;
  OpKind kind = OpKind::kElementwise;
  Pass pass = Pass::kForward;
  Function function = Function::kNone;
  CollectiveKind collective = CollectiveKind::kExchange;  // collectives only
  SegmentId segment = 0;
  std::int16_t index = 0;  // of the op in its segment
  std::int16_t layer = 0;
  std::int32_t chunk = 0;
  GroupId group = -1;  // collectives
  std::string label;
  std::string kernel;      // what ran: "cublaslt", "cudnn", "piece_attention", "rms_norm", ...
  std::int64_t bytes = 0;  // collectives: bytes sent by this rank, without self-copies; else bytes touched
  // True where virtual ranks stand for a transfer: the time is of a device copy, and a report takes the model's.
  bool communication = false;
  std::vector<std::int64_t> start_ps, end_ps;  // by repeat
  bool operator==(const MeasuredOp&) const = default;
};

struct RankRun {
  std::int32_t rank = 0;
  std::int32_t device = 0;
  std::int64_t resident_bytes = 0;      // held from before the step to after it
  std::int64_t planned_peak_bytes = 0;  // most bytes held at once, following acquire and release in program order
  std::int64_t arena_bytes = 0;         // what the arena plan allocates: planned peak plus what its gaps cost
  std::int64_t scratch_bytes = 0;       // planned beside the arena: op scratch, row lists, workspaces of libraries
  std::int64_t device_peak_bytes = 0;   // as the device reports it: most in use less what was in use before; 0: unknown
  // Whole steps without events inside, by repeat. Virtual ranks: the ops of this rank alone, transfers left out.
  std::vector<std::int64_t> step_ps;
  // The multiprocessors' mean clock over each of those steps, 0 where the device cannot tell; empty: not recorded.
  std::vector<std::int32_t> clock_mhz;
  bool operator==(const RankRun&) const = default;
};

// ||x - ref|| / ||ref|| (Frobenius, fp64) of one quantity over all ranks that hold it, worst layer.
// What zeros in place of a result have as their error: from this limit on everything passes, so it allows nothing.
inline constexpr double kErrorOfZeros = 1;

struct NumericsResult {
  std::string quantity;            // "O", "LSE", "dQ", "dK", "dV", "loss", gradients "embedding", "qkv", "gate_up", ...
  std::string reference;           // "fp64", "fp64-rows" (sampled rows), "undistributed-bf16"
  double error = 0;                // infinity if something is NaN or missing
  double undistributed_error = 0;  // of the undistributed bf16 run against the same reference; 0: not compared
  double limit = 0;                // most error that passes; kErrorOfZeros and more: none does
  std::int64_t elements = 0;       // compared
  std::int64_t missing = 0;        // elements of the reference that no rank held
  std::string worst;               // where: "layer 1, rank 3"
  bool pass = false;
  bool operator==(const NumericsResult&) const = default;
};

// What was left out of the run or of a comparison, and why.
struct Exclusion {
  std::int32_t rank = -1;      // -1: all
  std::int32_t position = -1;  // -1: the whole rank
  std::string what, reason;
  bool operator==(const Exclusion&) const = default;
};

// Why a run ended early; empty `kind`: it did not. What was measured before is kept.
struct RunFailure {
  std::string kind;  // of FaultKind: "kernel", "nccl", "hang", "memory", "device-lost", "unsupported"
  std::string message;
  std::int32_t rank = -1, position = -1;
  std::string op, kernel;
  bool operator==(const RunFailure&) const = default;
};

struct RunRecord {
  RunIdentity identity;
  HardwareInfo hardware;
  RankPlacement placement = RankPlacement::kVirtual;
  std::int32_t ranks = 0;
  std::int32_t warmups = 0;
  std::int32_t repeats = 0;
  std::vector<RankRun> rank_runs;  // by rank
  std::vector<MeasuredOp> ops;     // by rank, then position
  // Real ranks: whole undisturbed steps of the machine, from the first launch to the last end, by repeat. Empty for
  // virtual ranks: no step of all ranks together means anything there.
  std::vector<std::int64_t> step_ps;
  // Virtual ranks: most bytes in use on the device by all ranks together, libraries included, less what was in use
  // before; 0: unknown. Real ranks have it in their RankRun.
  std::int64_t device_peak_bytes = 0;
  std::vector<NumericsResult> numerics;
  std::vector<Exclusion> exclusions;
  RunFailure failure;
  bool operator==(const RunRecord&) const = default;
};

// Hash of everything that decides what the ranks run: ops, order, shapes, pieces, peers, model. Same on every machine.
std::uint64_t schedule_fingerprint(const Schedule& schedule);

// The value of the key "format" is "longhaul-run/1": one object an op. In "longhaul-run/2" ops are columns, a tenth of
// the text (validate/device/op_columns.h); all else is the same.
nlohmann::ordered_json to_json(const RunRecord& record);
nlohmann::ordered_json to_columns_json(const RunRecord& record);
// Reads both. Errors name `file` and JSON pointers: unknown and missing keys, wrong types, lists whose length is not
// `repeats` (unless the run failed), a start before its step's, an end before its start, a rank twice, whole steps of
// virtual ranks. `part`: of one process of a job, which has not all ranks.
Expected<RunRecord> run_record_from_json(const nlohmann::ordered_json& json, const std::string& file,
                                         bool part = false);
Expected<RunRecord> read_run_record(const std::string& file);
// Written whole to a temporary file beside it, then renamed. Throws LimitError if it cannot be written.
void write_run_record(const RunRecord& record, const std::string& file);

}  // namespace longhaul
