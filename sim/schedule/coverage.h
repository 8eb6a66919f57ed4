// Attention coverage: per layer, the union of the forward attention pieces of all ranks is the mask of the workload,
// each (query, key) pair once. Where heads are split over a group (`head_role`), each head share must cover the mask.
//
// Layers with the same ops and chunks share pieces and are checked once.
// Pieces are placed by the row maps of q and of the operand that they name; a piece whose claimed tokens disagree with
// the row maps is a violation. Masks: causal within a document (causal LM); csbp.md 2.1 (block diffusion).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/schedule/schedule.h"

namespace longhaul {

struct CoverageOptions {
  // Sum of squared document rows up to which every pair is checked; above it, row maps and pair sums per document.
  std::int64_t brute_force_pairs = 1 << 24;
  std::size_t max_violations = 100;
};

// Violations with places; empty if the forward pass covers the mask.
std::vector<std::string> check_coverage(const Schedule& schedule, const CoverageOptions& options = {});

}  // namespace longhaul
