// verify: a schedule executed on virtual ranks against the undistributed reference.
//
// Error of a quantity = max|x - ref| / max|ref| over all of its elements on all ranks that hold it (if max|ref| is 0,
// max|x|), the worst of all layers. dQ and dK are measured against at least 1e-4 max|dV|: where every row sees one key
// they vanish, and nothing but rounding is left. Every element of the reference must be held by some rank, or the
// quantity fails. How quantities are found in a schedule: by tensor kind,
//   "<unit>_grads" (whole, resident) or "<unit>_grad_shard" (member i of role "zero" holds [i s, (i + 1) s), resident),
//   "attention_output" (rows x q_width) and "qkv_grad" (rows x qkv_width, gradient of the projection's output).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/schedule/schedule.h"
#include "validate/cpu/executor.h"

namespace longhaul {

struct VerifyOptions {
  double tolerance = 1e-10;
  double flop_limit = 1e12;
  ExecutionOrder order = ExecutionOrder::kProgram;
  std::uint64_t order_seed = 1;
  std::uint64_t parameter_seed = 1;
};

struct QuantityError {
  std::string name;  // "loss"; gradients "embedding", "attention_norm", "qkv", "output", "ffn_norm", "gate_up",
                     // "down", "extra", "final_norm", "head"; "O", "dQ", "dK", "dV"
  double error = 0;  // infinity if something is NaN or missing
  std::int64_t compared = 0;  // elements, counted on every rank that holds them
  std::int64_t missing = 0;   // elements of the reference that no rank held
  std::string worst;          // where the largest difference is
};

struct VerifyReport {
  std::vector<QuantityError> quantities;
  double worst = 0;
  bool pass = false;
  double loss = 0;
  double flops = 0;  // estimate for executor and reference together
  std::int64_t ops = 0, collectives = 0;
  std::vector<std::string> violations;  // of check_schedule and check_coverage; any fails
};

// Multiply-adds x 2 of the GEMMs and of the attention pieces of all ranks.
double schedule_flops(const Schedule& schedule);

// Throws LimitError above the FLOP limit or the op limit of check_schedule, ScheduleError and DeadlockError as
// execute() does.
VerifyReport verify(const Schedule& schedule, const VerifyOptions& options = {});

}  // namespace longhaul
