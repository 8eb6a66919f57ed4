#include "reports/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "reports/format.h"

namespace longhaul {
namespace {

const ResultRow& row_at(const ResultCase& one, int index) { return one.rows[static_cast<std::size_t>(index)]; }

// What rows are ranked by: the time of a token over the winner's where all have it (rows may train fewer tokens a step
// while documents wait), else the step time.
class Ranking {
 public:
  explicit Ranking(const ResultCase& one) {
    const auto lacks = [](const ResultRow& row) { return row.timed() && !row.over_winner; };
    a_token_ = std::none_of(one.rows.begin(), one.rows.end(), lacks) &&
               std::none_of(one.hidden.begin(), one.hidden.end(), lacks);
  }
  // Of a timed row.
  double time(const ResultRow& row) const { return a_token_ ? *row.over_winner : *row.step_ms; }

 private:
  bool a_token_ = false;
};

// "a", "a and b", "a, b and c".
std::string list(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) out += i + 1 == names.size() ? " and " : ", ";
    out += names[i];
  }
  return out;
}

std::string list_labels(const ResultCase& one, const std::vector<int>& rows) {
  std::vector<std::string> names;
  for (const int row : rows) names.push_back(row_at(one, row).label);
  return list(names);
}

// "1 932 ms a step (1 801 to 2 104)".
std::string step_text(const ResultRow& row) {
  const TimeUnit unit = time_unit(row.high());
  const int decimals = time_decimals(unit, row.high());
  const auto in_unit = [&](double ms) { return format_number(ms * unit.per_ms, decimals); };
  const std::string step = fmt::format("{}\u00a0{} a step", in_unit(*row.step_ms), unit.name);
  if (row.low() == row.high()) return step;
  return fmt::format("{} ({} to {})", step, in_unit(row.low()), in_unit(row.high()));
}

// How much faster `row` is than the baseline, with the ends of the ratio, or what the two intervals allow.
std::string against_baseline(const Ranking& ranking, const ResultRow& row, const ResultRow* baseline) {
  if (baseline == nullptr || !baseline->timed()) return "";
  if (&row == baseline) return "It is the baseline of this case.";
  const double ratio = ranking.time(*baseline) / ranking.time(row);
  std::string text = fmt::format("It is {} as fast as the baseline {}", format_ratio(ratio), baseline->label);
  const bool interval = row.low() != row.high() || baseline->low() != baseline->high();
  if (row.speedup_low && row.speedup_high) {
    text += fmt::format(" ({} to {})", format_ratio(*row.speedup_low), format_ratio(*row.speedup_high));
  } else if (interval) {
    text += fmt::format(" ({} to {})", format_ratio(baseline->low() / row.high()),
                        format_ratio(baseline->high() / row.low()));
  }
  if (baseline->does_not_fit) text += ", which does not fit in memory";
  return text + ".";
}

// The fastest row that does not fit and would be faster than `leader`, if there is one.
std::string faster_but_too_large(const Ranking& ranking, const ResultCase& one, const ResultRow& leader) {
  const ResultRow* fastest = nullptr;
  for (const ResultRow& row : one.rows) {
    if (!row.timed() || !row.does_not_fit || ranking.time(row) >= ranking.time(leader)) continue;
    if (fastest == nullptr || ranking.time(row) < ranking.time(*fastest)) fastest = &row;
  }
  if (fastest == nullptr) return "";
  std::string text = fmt::format("{} would be faster ({}) but does not fit in memory", fastest->label,
                                 format_duration(*fastest->step_ms));
  const FitFault& fault = *fastest->does_not_fit;
  if (fault.needed_bytes && fault.limit_bytes) {
    text += fmt::format(": it needs {} of {}", format_bytes(*fault.needed_bytes), format_bytes(*fault.limit_bytes));
  }
  return text + ".";
}

std::string nobody_fits(const ResultCase& one) {
  const ResultRow* least = nullptr;
  for (const ResultRow& row : one.rows) {
    if (row.not_applicable || !row.does_not_fit || !row.does_not_fit->needed_bytes) continue;
    if (least == nullptr || *row.does_not_fit->needed_bytes < *least->does_not_fit->needed_bytes) least = &row;
  }
  std::string text = "no strategy fits in the memory of a GPU.";
  if (least == nullptr) return text;
  text += fmt::format(" {} comes nearest: it needs {}", least->label, format_bytes(*least->does_not_fit->needed_bytes));
  if (least->does_not_fit->limit_bytes) text += fmt::format(" of {}", format_bytes(*least->does_not_fit->limit_bytes));
  return text + ".";
}

std::string join_sentences(const std::vector<std::string>& sentences) {
  std::string out;
  for (const std::string& sentence : sentences) {
    if (sentence.empty()) continue;
    if (!out.empty()) out += " ";
    out += sentence;
  }
  return out;
}

// Fills kind, headline and sentence of a case where at least one row runs.
void word(const ResultCase& one, const Ranking& ranking, const std::vector<int>& running, CaseVerdict& verdict) {
  const ResultRow& leader = row_at(one, verdict.leader);
  const std::string beside = against_baseline(ranking, leader, one.baseline());
  const std::string too_large = faster_but_too_large(ranking, one, leader);
  if (running.size() == 1) {
    verdict.kind = VerdictKind::kOnlyOne;
    const bool alone = one.rows.size() == 1;
    verdict.headline = alone ? fmt::format("{} alone", leader.label) : fmt::format("Only {} runs", leader.label);
    const char* why = alone ? "the case holds no other row" : "no other row of this case applies and fits";
    verdict.detail =
        join_sentences({fmt::format("{} takes {}; {}.", leader.label, step_text(leader), why), beside, too_large});
    return;
  }
  std::vector<int> siblings, rivals;  // overlapping rows of the leader's own strategy, and of others
  for (const int row : verdict.overlaps) {
    (row_at(one, row).strategy == leader.strategy ? siblings : rivals).push_back(row);
  }
  if (rivals.empty()) {
    verdict.kind = VerdictKind::kWins;
    verdict.headline = fmt::format("{} wins", siblings.empty() ? leader.label : leader.strategy);
    const std::string other_layouts =
        siblings.empty()
            ? ""
            : fmt::format("Its other layouts ({}) are too close to tell apart.", list_labels(one, siblings));
    verdict.detail =
        join_sentences({fmt::format("{} takes {}.", leader.label, step_text(leader)), beside, other_layouts,
                        siblings.empty() ? "No other comes within the error of the comparison."
                                         : "No other strategy comes within the error of the comparison.",
                        too_large});
    return;
  }
  verdict.kind = VerdictKind::kTooClose;
  verdict.headline = "Too close to call";
  std::vector<std::string> ties;
  for (const int row : rivals) {
    if (ranking.time(row_at(one, row)) == ranking.time(leader)) ties.push_back(row_at(one, row).label);
  }
  const bool one_rival = rivals.size() == 1;
  const bool shortest = std::none_of(running.begin(), running.end(),
                                     [&](int row) { return *row_at(one, row).step_ms < *leader.step_ms; });
  const std::string lead =
      ties.empty() ? fmt::format("{} {}", leader.label, shortest ? "has the shortest step" : "trains a token fastest")
                   : fmt::format("{} ties with {}", leader.label, list(ties));
  verdict.detail = join_sentences({fmt::format("{}, {}, but {} {} within the error of the comparison.", lead,
                                               step_text(leader), list_labels(one, rivals), one_rival ? "is" : "are"),
                                   beside, too_large});
}

}  // namespace

CaseVerdict case_verdict(const ResultCase& one) {
  CaseVerdict verdict;
  const Ranking ranking(one);
  std::vector<int> order(one.rows.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<int> running;
  std::copy_if(order.begin(), order.end(), std::back_inserter(running),
               [&](int row) { return row_at(one, row).runs(); });
  std::stable_sort(running.begin(), running.end(),
                   [&](int a, int b) { return ranking.time(row_at(one, a)) < ranking.time(row_at(one, b)); });
  if (!running.empty()) {
    verdict.leader = running.front();
    const double high = row_at(one, verdict.leader).high();
    std::copy_if(running.begin() + 1, running.end(), std::back_inserter(verdict.overlaps), [&](int row) {
      const ResultRow& other = row_at(one, row);
      return other.over_winner_low ? *other.over_winner_low <= 1 : other.low() <= high;
    });
    word(one, ranking, running, verdict);
    return verdict;
  }
  const bool fits_not = std::any_of(one.rows.begin(), one.rows.end(),
                                    [](const ResultRow& row) { return !row.not_applicable && row.does_not_fit; });
  if (fits_not) {
    verdict.kind = VerdictKind::kNobodyFits;
    verdict.headline = "Nothing fits";
    verdict.detail = nobody_fits(one);
  } else if (!one.rows.empty()) {
    verdict.kind = VerdictKind::kNobodyApplies;
    verdict.headline = "Nothing applies";
    verdict.detail = "no strategy of this case has a step time; the table says why.";
  } else {
    verdict.headline = "No rows";
    verdict.detail = "the results hold no strategy.";
  }
  return verdict;
}

}  // namespace longhaul
