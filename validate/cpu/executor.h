// The CPU executor: runs a schedule in double precision on virtual ranks, one op at a time, always in the same order.
//
// It honours CUDA's order and no more: an op may run once the op before it on its stream has run and every event that
// it waits for has been recorded (a wait names the latest record of its slot before it in program order; a slot that
// nothing recorded counts as done). A collective runs when every member's call may run; the k-th calls of all members
// of a group belong together. Among the ops that may run, `ExecutionOrder` picks: a schedule that lacks a wait reads
// NaN in one of the orders. Time, bytes on the wire and memory limits are not modelled.
#pragma once

#include <cstdint>
#include <functional>

#include "sim/schedule/schedule.h"
#include "validate/cpu/errors.h"
#include "validate/cpu/storage.h"

namespace longhaul {

enum class ExecutionOrder : std::uint8_t {
  kProgram,             // earliest in its program first, ranks in turn
  kComputeFirst,        // the compute stream runs as far ahead as it may
  kCommunicationFirst,  // all other streams run as far ahead as they may
  kRandom,              // by seed
};

struct ExecutionOptions {
  ExecutionOrder order = ExecutionOrder::kProgram;
  std::uint64_t order_seed = 1;
  std::uint64_t parameter_seed = 1;
  // Called with each tensor right before it goes: with the op that releases it, and at the end, with nullptr, for the
  // resident ones.
  std::function<void(int rank, const TensorData& tensor, const OpInstance* at)> on_release;
};

struct ExecutionResult {
  double loss = 0;       // sum over ranks
  std::int64_t ops = 0;  // launched; empty ones not counted
  std::int64_t collectives = 0;
};

// Throws ScheduleError or DeadlockError.
ExecutionResult execute(const Schedule& schedule, const ExecutionOptions& options);

// Parameters start from parameters.h: kinds "<unit>_params" (whole) and "<unit>_param_shard" (member i of the group of
// role "zero" holds elements [i s, (i + 1) s), zero padded), unit = embedding, layer or head. Gradients and optimizer
// state start at zero. Sets every element of the resident tensors of `rank`.
void add_resident_tensors(Machine& machine, int rank, std::uint64_t parameter_seed);

}  // namespace longhaul
