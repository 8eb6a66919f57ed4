// Which entry each entry of a case is compared with, and the entries that run for that alone.
//
// The published baseline of an entry runs at the entry's micro-batch and, where both are of one family, at its layout
// request. An entry of the case that is just that is taken; otherwise a hidden one is added. BASP is also compared with
// Ulysses at sp = N / B and micro-batch 1 (basp.md), where B divides N.
#pragma once

#include <string>
#include <vector>

#include "sim/study/setup.h"

namespace longhaul {

struct PlannedEntry {
  StrategyEntry entry;
  bool hidden = false;
  int own = -1;          // index of the entry that it was published against; itself for a baseline
  int alternative = -1;  // BASP's second baseline
};

// The entries of `labels` (all if empty) in the order of the study, then the hidden ones. The study's baseline is
// there.
std::vector<PlannedEntry> with_baselines(const CaseSetup& setup, const std::vector<std::string>& labels);

}  // namespace longhaul
