// Predicted against measured: op kinds, ranks, streams, the whole step, exposed communication, peak memory.
//
// A measured value is the median over repeats of the sum over the ops of a row, with the distribution-free interval of
// that median (repeats.h). A predicted value is the sum of predictions; its interval adds the half widths of ops of one
// kernel kind (they err together) and combines kinds in quadrature (they err apart), as sim/analysis/breakdown.h does.
// error = predicted / measured - 1. `inside`: the measured median lies within the predicted interval.
// On virtual ranks kernels are measured and communication is the model's: such rows say so (`Source`).
// Units: seconds and bytes, doubles. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/uncertainty.h"
#include "sim/core/error.h"
#include "validate/device/run_record.h"
#include "validate/report/composed_step.h"
#include "validate/report/prediction.h"
#include "validate/report/repeats.h"

namespace longhaul {

enum class Source : std::uint8_t {
  kMeasured,  // by the device
  kComposed,  // measured kernels, modelled communication
  kModel,     // nothing was measured: predicted alone
};
const char* to_string(Source source);

struct ComparedRow {
  std::string name;
  Source source = Source::kMeasured;
  std::int64_t calls = 0;  // ops of one repeat; 0 where that says nothing
  double predicted = 0, predicted_low = 0, predicted_high = 0;
  double measured = 0, measured_low = 0, measured_high = 0;
  bool bounded = false;  // there were enough repeats for the measured interval
  double share = 0;      // of the measured kernel time of all ranks

  double error() const { return measured > 0 ? predicted / measured - 1 : 0; }
  bool inside() const { return measured >= predicted_low && measured <= predicted_high; }
};

// One op template at one shape, over ranks, layers and chunks.
struct ComparedSite {
  std::string label, kind, pass, shape, shape_class, basis, kernel;
  std::vector<std::int32_t> ranks;  // sorted, each once
  ComparedRow row;                  // times of all its calls together
};

struct Trait {
  std::string name, value;        // "kind", "gemm"
  int worst = 0, worst_of = 0;    // sites among the worst
  int others = 0, others_of = 0;  // among all
  double chance = 1;              // hypergeometric tail: so many by luck
};

struct WorstOps {
  std::vector<ComparedSite> sites;  // at most ten, largest |predicted - measured| first
  std::vector<Trait> traits;        // what they have in common, least likely by luck first; may be empty
};

// Kernels of one rank alone, and how far their sum may be off (sim/analysis/uncertainty.h).
struct RankKernels {
  Time time;
  ErrorWidths widths;
};

struct Comparison {
  std::string strategy;
  RunIdentity identity;
  HardwareInfo hardware;
  std::int32_t step_clock_mhz = 0;  // median over the undisturbed steps of all ranks; 0: not known
  RankPlacement placement = RankPlacement::kVirtual;
  std::int32_t ranks = 0, repeats = 0;
  double confidence = 0;  // of measured intervals
  std::vector<ComparedRow> kinds, rank_compute, rank_alone, streams, collectives;
  RankKernels slowest_rank;  // as predicted
  ComparedRow step, exposed_communication;
  std::vector<ComparedRow> peak_memory;  // bytes, by rank
  std::vector<ComparedSite> sites;       // all, as first met
  WorstOps worst;
  std::vector<NumericsResult> numerics;
  std::vector<Exclusion> exclusions;
  std::vector<std::string> remarks;  // what a reader must know: virtual ranks, modelled ops, drift
  bool numerics_pass() const;
  // Of the steps, or what was read right before them; 0: neither is known.
  std::int32_t clock_mhz() const { return step_clock_mhz > 0 ? step_clock_mhz : hardware.sm_clock_before_mhz; }
};

inline constexpr double kMeasuredConfidence = 0.95;

// Where a record stands: its file, and the JSON pointer of the record in it.
struct RecordPlace {
  std::string file, path;
};

// What makes `record` no run of the prediction's schedule: another fingerprint, another rank count, no repeats, ops
// that it lacks (its exclusions excepted) or that the schedule has not. At most ten ops are named, the others counted.
Errors record_faults(const Prediction& prediction, const RunRecord& record, const RecordPlace& place);

// `record` has no record_faults. `composed`: of the same record, on virtual ranks; else null.
Comparison compare_run(const Prediction& prediction, const RunRecord& record, const ComposedStep* composed);

// The ten sites with the largest |predicted - measured|, and every trait (kind, pass, label, shape class, basis, rank)
// that at least half of them have and that so many would have by chance in fewer than 1 of 100 draws (hypergeometric,
// of all sites). Fewer than five sites: no traits.
WorstOps find_worst(const std::vector<ComparedSite>& sites);

}  // namespace longhaul
