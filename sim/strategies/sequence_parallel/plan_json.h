// Ulysses and BASP plans as JSON, for `longhaul plan`.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>

#include "sim/strategies/sequence_parallel/plan.h"

namespace longhaul {

// Groups with their ranks, sequences, rows, topology class and forward all-to-all bytes a rank and layer; then heads
// and rows per rank. `sequence_pairs`: unmasked pairs of each sequence, a head; `first_rank`: the replica's first
// global rank, from which node borders are counted.
struct SpJsonInputs {
  std::span<const std::int64_t> sequence_pairs;
  std::int64_t head_dim = 0;
  std::int64_t bytes_per_element = 2;
  std::int64_t first_rank = 0;
  std::int64_t gpus_per_node = 1;
};
nlohmann::ordered_json plan_json(const SpPlan& plan, const SpJsonInputs& inputs);

}  // namespace longhaul
