// Small training steps that the device executor runs on the CPU: one for each strategy and rank count.
//
// Model: 2 layers, 4 query and 2 key heads of 16, FFN 4 x hidden, vocabulary 97. Documents of 12 to 48 tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/strategies/registry.h"

namespace longhaul {

struct DeviceCase {
  std::string strategy;
  int ranks = 2;
  int zero_stage = 3;
  Recompute recompute = Recompute::kNone;
  std::int64_t head_dim = 16;
  std::int64_t q_heads = 4, kv_heads = 2;
  std::int64_t layers = 2;
  std::int64_t hidden_factor = 1;  // hidden = q_width x this
  std::int64_t vocab = 97;
  bool qkv_bias = false, qk_norm = false;
  std::vector<std::vector<std::int64_t>> sequences = {{37, 12}, {48}, {20, 29}, {49}};
};

// Throws std::runtime_error with the strategy's reason where it cannot run the case.
std::shared_ptr<const Schedule> schedule_of(const DeviceCase& of);
// The same training step without distribution: one rank that holds every token.
std::shared_ptr<const Schedule> undistributed_of(const DeviceCase& of);

// flashcp basp csbp dpp allgather-cp per-doc-cp ulysses bd-offset-cp 1f1b seq1f1b: what issue 6 names.
const std::vector<std::string>& device_strategies();

}  // namespace longhaul
