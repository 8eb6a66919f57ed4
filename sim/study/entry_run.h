// One strategy entry of a case: plan, simulate, summarise; for "best", all layouts; what would make it fit.
//
// Units: Time, bytes. Invariant: a function of the case and the entry alone, whatever else runs at the same time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/summary.h"
#include "sim/study/setup.h"

namespace longhaul {

enum class TraceMode : std::uint8_t {
  kNone,
  kChosen,    // the first and the slowest rank of each node, one micro-batch (pipelines: the first chunks)
  kCritical,  // the rank that ends last, all chunks
  kAll,
};

struct EntryTrace {
  std::shared_ptr<const Schedule> schedule;  // owns what the records point to
  RecordedTimeline timeline;
  std::vector<std::int32_t> ranks;  // traced, sorted
  std::int32_t chunks = 0;          // chunks traced; INT32_MAX: all
  std::int32_t nodes_left_out = 0;  // nodes beyond the limit on traced nodes
};

struct DoesNotFit {
  std::int64_t needed_bytes = 0;
  std::int64_t limit_bytes = 0;
  std::int32_t rank = 0;
  MemoryCategory category = MemoryCategory::kActivations;  // the largest at the peak
  std::string change;                // the smallest change that fits; empty if none of those tried does
  std::vector<std::string> checked;  // changes simulated, in order; the last is `change` if that is not empty
};

struct EntryResult {
  std::string case_name;
  std::string label;
  std::string strategy;
  std::string attention_library;  // of its own; empty: the case's
  std::string note;
  bool hidden = false;  // runs only as a published baseline
  Degrees degrees;
  std::int64_t micro_batch_sequences = 1;
  bool best = false;
  int layouts_legal = 0;       // "best": layouts that the strategy can run
  int layouts_simulated = 0;   // the others cannot be faster, by their lower bounds
  std::string not_applicable;  // the reason; empty if it ran
  std::optional<StepSummary> summary;
  std::optional<DoesNotFit> does_not_fit;
  std::string own_baseline;  // what speedup_own is against
  // Time a token: steps of a case train the same tokens, but for documents that wait (delayed packing).
  std::optional<double> speedup, speedup_own, speedup_own_alternative;
  std::optional<Ratio> over_baseline;  // the baseline's time over this one's, with its ends: `speedup`
  std::optional<Ratio> over_winner;    // this time over that of the case's winner
  std::string own_alternative;
  std::shared_ptr<const EntryTrace> trace;

  bool fits() const { return summary.has_value() && !does_not_fit.has_value(); }
};

// Speed-ups are left to the caller, who knows the other entries.
EntryResult run_entry(const CaseSetup& setup, const StrategyEntry& entry, TraceMode trace);

// Plans one step of an entry, its layout resolved ("best": the one that run_entry takes).
Planned plan_entry(const CaseSetup& setup, const StrategyEntry& entry, const Degrees& degrees, std::size_t step);

}  // namespace longhaul
