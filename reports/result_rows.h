// The rows of a results file as typed values, grouped by case: the raw records of every report.
//
// Reads schema results/1 (docs/report.md lists the keys). A key that is absent or null stays empty; a key of the wrong
// type counts as absent, for reports are made from files of other versions too. Ignores keys that it does not know,
// except the parts of `time_ms` and `memory_bytes`, which are kept whatever their names.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace longhaul {

using NamedValues = std::vector<std::pair<std::string, double>>;  // in the file's order

// Over ranks.
struct SentBytes {
  double min = 0, mean = 0, max = 0;
};

struct FitFault {
  std::optional<double> needed_bytes, limit_bytes;
  std::optional<std::int64_t> rank;
  std::string category;
  std::string smallest_change;  // that would fit; empty if none is known
};

struct ResultRow {
  std::string label;     // as shown; unique in a case
  std::string strategy;  // its name
  std::string layout;    // "cp 8, dp 2"; empty if not given
  bool baseline = false;
  std::optional<double> step_ms, low_ms, high_ms;
  std::optional<double> tokens_per_second_per_gpu, mfu, speedup, speedup_own, imbalance;
  std::optional<double> speedup_low, speedup_high;  // of the ratio, whose errors the two steps share
  std::optional<double> over_winner;                // time a token over the winner's
  std::optional<double> over_winner_low;            // and its low end
  std::string own_baseline;                         // what speedup_own compares with
  std::string bound_by;
  NamedValues time_ms;  // sums to step_ms
  std::optional<double> peak_bytes, limit_bytes, headroom_bytes;
  NamedValues memory_bytes;  // at the peak
  std::optional<SentBytes> sent_intra_node, sent_inter_node;
  std::optional<std::string> not_applicable;
  std::optional<FitFault> does_not_fit;
  std::vector<std::string> notes;

  // Has a time: it applies and was simulated.
  bool timed() const { return step_ms.has_value() && !not_applicable; }
  // May win.
  bool runs() const { return timed() && !does_not_fit; }
  // The ends of the step time; the step time itself where an end is not given.
  double low() const { return low_ms.value_or(*step_ms); }
  double high() const { return high_ms.value_or(*step_ms); }
};

struct ResultCase {
  std::string name;  // empty when the study has no cases
  std::vector<ResultRow> rows;
  std::vector<ResultRow> hidden;  // ran only as baselines: not shown, cannot win

  const ResultRow* baseline() const;  // shown or hidden; nullptr if the results have none
};

// In the order in which cases first appear; a results file without rows gives no case.
std::vector<ResultCase> read_result_rows(const nlohmann::ordered_json& results);

// "exposed_communication" -> "exposed communication".
std::string words(const std::string& key);

}  // namespace longhaul
