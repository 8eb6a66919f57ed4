// A version of a study that fits the machine at hand, for `longhaul validate --reduced`.
//
// Kept as long as anything else can give: tokens a rank, the document structure (every document keeps its share of its
// sequence), head counts and head_dim, the strategy and its options, ZeRO, recompute. Reduced, in this order: replicas
// (dp), ranks that share a sequence or a pipeline, sequences of a step, layers (two a stage, else one), tokens a rank
// (halved), then the vocabulary, the FFN and the hidden size. The first version that the strategy can run and whose
// simulated peak fits is taken. Each change is written down with its reason.
// Units: bytes. Pure: reads only shipped data files; the same input gives the same version.
#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "sim/core/json.h"
#include "sim/scenario/study.h"
#include "sim/strategies/strategy.h"

namespace longhaul {

struct MachineAtHand {
  std::string device;             // shipped name ("h200"): predictions are made for it
  int ranks = 1;                  // at most so many: GPUs, or virtual ranks
  bool virtual_ranks = false;     // all of them on one GPU: their peaks add up
  std::int64_t memory_bytes = 0;  // that one GPU gives to a step
};

struct Change {
  std::string what, from, to, why;
  std::string text() const;  // "layers 32 -> 4: two a stage show every kernel"
};

struct FittedStudy {
  Json study;  // study/1 with one case and one strategy; reads as `study_case`
  Degrees degrees;
  std::vector<Change> changes;  // empty: the study fits as it is
  std::int64_t peak_bytes = 0;  // of the fullest GPU, simulated
  int versions_tried = 0;
};

// Kernels' scratch and the allocator's gaps are not simulated: a version fits below this part of the memory.
inline constexpr double kUsablePart = 0.9;

// The error is why no version runs: the strategy never applies, or the machine is too small even for the least one.
tl::expected<FittedStudy, std::string> reduce_for_machine(const Study& study, const StudyCase& study_case,
                                                          const StrategyEntry& entry, const MachineAtHand& machine);

}  // namespace longhaul
