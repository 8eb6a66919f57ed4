// Which strategy of a case wins, in words.
//
// A row may win if it applies and fits. The shortest step time leads (equal times: the first row). It wins when every
// other row's step over its own is above 1 even at the low end of that ratio, in which errors that both steps share
// (the same kernels, the same links) cancel (sim/analysis/uncertainty.h); rows of which that is not so make the case
// "too close to call"; unless all of them are the same strategy in another layout: then that strategy wins. Results
// without ratios (older files) compare the two intervals as if they were independent, which calls fewer winners.
#pragma once

#include <string>
#include <vector>

#include "reports/result_rows.h"

namespace longhaul {

enum class VerdictKind { kWins, kTooClose, kOnlyOne, kNobodyFits, kNobodyApplies, kNoRows };

struct CaseVerdict {
  VerdictKind kind = VerdictKind::kNoRows;
  int leader = -1;            // row with the shortest step that fits; -1 if none does
  std::vector<int> overlaps;  // rows that fit and may be as fast as the leader, fastest first
  std::string headline;       // "flashcp wins", "Too close to call", ...
  std::string detail;         // by how much, over what, and what overlaps; plain text

  std::string sentence() const { return headline + ": " + detail; }
};

CaseVerdict case_verdict(const ResultCase& one);

}  // namespace longhaul
