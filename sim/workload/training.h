// How a step is trained: the knobs that every strategy of a case shares, and the parallel degrees of one row.
#pragma once

#include <cstdint>
#include <optional>

namespace longhaul {

enum class Recompute : std::uint8_t { kNone, kFull };

// What one simulated step contains.
enum class Scope : std::uint8_t {
  kStep,             // embedding, layers, head, loss, backward, optimizer
  kForwardBackward,  // the same without the optimizer
  kLayers,           // the layers alone, forward and backward
  kAttention,        // q, k, v in, O out, with copies and communication
};

struct Training {
  int zero_stage = 0;  // 0 or 3
  Recompute recompute = Recompute::kNone;
  std::int64_t micro_batch_sequences = 1;  // packed sequences that one forward of a sequence-parallel group takes
  Scope scope = Scope::kStep;
  bool backward = true;  // false: forward passes only (scopes kLayers and kAttention)
};

// Degrees; a missing one follows from the GPU count and the strategy.
struct Layout {
  std::optional<int> tp, pp, cp, sp, dp, ep;
};

}  // namespace longhaul
