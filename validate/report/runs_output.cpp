// The accuracy of kept runs as text, JSON and CSV.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "sim/core/csv.h"
#include "sim/core/order_statistics.h"
#include "sim/study/results_json.h"
#include "validate/report/run_targets.h"
#include "validate/report/runs_table.h"
#include "validate/report/text_table.h"
#include "validate/report/units.h"

namespace longhaul {
namespace {

// Errors of some rows: the median and the nine-in-ten (nearest rank) of |error|, the median of error, and how many
// measured values lay within the predicted interval.
struct ErrorSpread {
  std::size_t count = 0, inside = 0;
  double median = 0, nine_in_ten = 0, bias = 0;
};

ErrorSpread spread_of(const std::vector<ComparedRow>& rows) {
  std::vector<double> errors, sizes;
  ErrorSpread spread;
  for (const ComparedRow& row : rows) {
    if (row.source == Source::kModel || row.measured <= 0) continue;
    errors.push_back(row.error());
    sizes.push_back(std::abs(row.error()));
    spread.inside += row.inside() ? 1 : 0;
  }
  spread.count = errors.size();
  if (errors.empty()) return spread;
  spread.median = nearest_rank(sizes, 0.5);
  spread.nine_in_ten = nearest_rank(sizes, 0.9);
  spread.bias = nearest_rank(errors, 0.5);
  return spread;
}

std::vector<const JudgedRun*> counted(const RunsAccuracy& accuracy) {
  std::vector<const JudgedRun*> runs;
  for (const JudgedRun& run : accuracy.runs) {
    if (run.left_out.empty()) runs.push_back(&run);
  }
  return runs;
}

// Rows of one name over all runs that count, by name.
std::map<std::string, std::vector<ComparedRow>> rows_by_kind(const RunsAccuracy& accuracy) {
  std::map<std::string, std::vector<ComparedRow>> kinds;
  for (const JudgedRun* run : counted(accuracy)) {
    for (const ComparedRow& row : run->comparison.kinds) kinds[row.name].push_back(row);
  }
  return kinds;
}

ErrorSpread all_ranks(const RunsAccuracy& accuracy) {
  std::vector<ComparedRow> rows;
  for (const JudgedRun* run : counted(accuracy)) {
    rows.insert(rows.end(), run->comparison.rank_compute.begin(), run->comparison.rank_compute.end());
  }
  return spread_of(rows);
}

double worst_memory(const Comparison& run) {
  double worst = 0;
  for (const ComparedRow& row : run.peak_memory) {
    if (row.measured > 0 && std::abs(row.error()) > std::abs(worst)) worst = row.error();
  }
  return worst;
}

std::string part(double value) { return fmt::format("{:.1f} %", 100 * value); }

TextTable runs_table(const std::vector<const JudgedRun*>& runs) {
  TextTable table;
  table.columns = {"strategy", "case",   "layout",  "on",     "driver", "SM MHz", "date",
                   "repeats",  "median", "9 in 10", "memory", "step",   "inside"};
  table.to_the_right = {false, false, false, false, false, true, false, true, true, true, true, true, true};
  for (const JudgedRun* run : runs) {
    const Comparison& of = run->comparison;
    const ErrorSpread ranks = spread_of(of.rank_compute);
    const char* kind = of.placement == RankPlacement::kVirtual ? "virtual ranks" : "ranks";
    table.rows.push_back({of.strategy, of.identity.study_case, run->layout,
                          fmt::format("{} {}, {}", of.ranks, kind, of.hardware.device), of.hardware.driver,
                          fmt::format("{}", of.clock_mhz()), of.identity.date, fmt::format("{}", of.repeats),
                          part(ranks.median), part(ranks.nine_in_ten), percent_text(worst_memory(of)),
                          of.step.source == Source::kMeasured ? percent_text(of.step.error()) : "-",
                          fmt::format("{}/{}", ranks.inside, ranks.count)});
  }
  return table;
}

std::string amount(const RunTarget& target, const std::optional<double>& value) {
  if (!value) return "-";
  return target.name.starts_with("pairs") ? fmt::format("{:.0f}", *value) : part(*value);
}

std::string targets_text(const RunsAccuracy& accuracy) {
  TextTable table;
  table.columns = {"runs", "target", "asked", "measured", "of", "holds"};
  table.to_the_right = {false, false, true, true, true, false};
  for (const RunTarget& target : run_targets(accuracy)) {
    const auto pass = target.pass();
    const char* holds = pass ? (*pass ? "yes" : "NO") : target.asked ? "no run says" : "not asked";
    table.rows.push_back({target.scope, target.name, amount(target, target.asked), amount(target, target.measured),
                          fmt::format("{}", target.count), holds});
  }
  std::string text = aligned_text(table) + "\n";
  for (const std::string& line : uncovered_runs(accuracy)) text += line + "\n";
  return text;
}

Json targets_json(const RunsAccuracy& accuracy) {
  const auto known = [](const auto& value) { return value ? Json(*value) : Json(); };
  Json targets = Json::array();
  for (const RunTarget& target : run_targets(accuracy)) {
    targets.push_back({{"runs", target.scope},
                       {"target", target.name},
                       {"asked", known(target.asked)},
                       {"measured", known(target.measured)},
                       {"count", target.count},
                       {"holds", known(target.pass())}});
  }
  return targets;
}

Json spread_json(const ErrorSpread& spread) {
  return {{"count", spread.count},
          {"median", spread.median},
          {"nine_in_ten", spread.nine_in_ten},
          {"bias", spread.bias},
          {"inside", spread.inside}};
}

}  // namespace

std::string runs_text(const RunsAccuracy& accuracy) {
  const std::vector<const JudgedRun*> runs = counted(accuracy);
  std::string text = "Runs on real devices against their predictions (predicted / measured - 1)\n";
  for (const JudgedRun& run : accuracy.runs) {
    if (!run.left_out.empty()) text += fmt::format("left out: {}: {}\n", run.file, run.left_out);
  }
  if (runs.empty()) {
    return text + fmt::format(
                      "no measured run is kept in {}: nothing has been compared with a device yet\n"
                      "`longhaul validate STUDY --strategy NAME --reduced --keep` on a machine with a GPU adds "
                      "one\n",
                      accuracy.folder);
  }
  text += "\n" + aligned_text(runs_table(runs)) + "\n";
  TextTable kinds;
  kinds.columns = {"op kind", "runs", "median", "9 in 10", "bias", "inside"};
  kinds.to_the_right = {false, true, true, true, true, true};
  for (const auto& [name, rows] : rows_by_kind(accuracy)) {
    const ErrorSpread spread = spread_of(rows);
    kinds.rows.push_back({name, fmt::format("{}", spread.count), part(spread.median), part(spread.nine_in_ten),
                          percent_text(spread.bias), fmt::format("{}/{}", spread.inside, spread.count)});
  }
  text += aligned_text(kinds) + "\n";
  for (const OrderedPair& pair : accuracy.orders.pairs) {
    if (pair.right()) continue;
    text += fmt::format(
        "wrong order: {} beats {} by {:.3f}x as measured, predicted {:.3f}x within {:.3f} to {:.3f}{} ({}, {} ranks)\n",
        pair.faster, pair.slower, pair.measured_ratio, pair.predicted_ratio, pair.predicted_low, pair.predicted_high,
        pair.beyond() ? "" : ", closer than that interval", pair.study_case, pair.ranks);
  }
  return text + targets_text(accuracy);
}

std::string runs_json(const RunsAccuracy& accuracy) {
  Json runs = Json::array(), left_out = Json::array(), kinds = Json::array(), orders = Json::array();
  for (const JudgedRun& run : accuracy.runs) {
    const Comparison& of = run.comparison;
    if (!run.left_out.empty()) {
      left_out.push_back({{"file", run.file}, {"why", run.left_out}});
      continue;
    }
    Json of_kinds = Json::array();
    for (const ComparedRow& row : of.kinds) {
      of_kinds.push_back({{"kind", row.name}, {"error", row.error()}, {"inside", row.inside()}, {"share", row.share}});
    }
    runs.push_back({{"file", run.file},
                    {"study", of.identity.study},
                    {"case", of.identity.study_case},
                    {"strategy", of.strategy},
                    {"layout", run.layout},
                    {"placement", to_string(of.placement)},
                    {"ranks", of.ranks},
                    {"device", of.hardware.device},
                    {"driver", of.hardware.driver},
                    {"sm_clock_mhz", of.clock_mhz()},
                    {"date", of.identity.date},
                    {"repeats", of.repeats},
                    {"reduced", of.identity.reductions},
                    {"rank_compute", spread_json(spread_of(of.rank_compute))},
                    {"worst_memory_error", worst_memory(of)},
                    {"step_error", of.step.source == Source::kMeasured ? Json(of.step.error()) : Json()},
                    {"kinds", std::move(of_kinds)}});
  }
  for (const auto& [name, rows] : rows_by_kind(accuracy)) {
    Json kind = {{"kind", name}};
    kind.update(spread_json(spread_of(rows)));
    kinds.push_back(std::move(kind));
  }
  for (const OrderedPair& pair : accuracy.orders.pairs) {
    orders.push_back({{"case", pair.study_case},
                      {"ranks", pair.ranks},
                      {"faster", pair.faster},
                      {"slower", pair.slower},
                      {"measured_ratio", pair.measured_ratio},
                      {"predicted_ratio", pair.predicted_ratio},
                      {"predicted_low", pair.predicted_low},
                      {"predicted_high", pair.predicted_high},
                      {"beyond", pair.beyond()},
                      {"right", pair.right()}});
  }
  return results_text({{"table", "runs"},
                       {"runs", std::move(runs)},
                       {"left_out", std::move(left_out)},
                       {"rank_compute", spread_json(all_ranks(accuracy))},
                       {"kinds", std::move(kinds)},
                       {"orders", std::move(orders)},
                       {"targets", targets_json(accuracy)},
                       {"not_covered", uncovered_runs(accuracy)},
                       {"too_close", accuracy.orders.too_close}});
}

std::string runs_csv(const RunsAccuracy& accuracy) {
  std::string text =
      "file,study,case,strategy,placement,ranks,device,driver,sm_clock_mhz,date,repeats,kind,"
      "predicted_ms,measured_ms,error,inside,share\n";
  for (const JudgedRun* run : counted(accuracy)) {
    const Comparison& of = run->comparison;
    for (const ComparedRow& row : of.kinds) {
      text += csv_line({run->file, of.identity.study, of.identity.study_case, of.strategy, to_string(of.placement),
                        fmt::format("{}", of.ranks), of.hardware.device, of.hardware.driver,
                        fmt::format("{}", of.clock_mhz()), of.identity.date, fmt::format("{}", of.repeats), row.name,
                        fmt::format("{:.9f}", row.predicted * 1e3), fmt::format("{:.9f}", row.measured * 1e3),
                        fmt::format("{:.6f}", row.error()), row.inside() ? "yes" : "no",
                        fmt::format("{:.6f}", row.share)}) +
              "\n";
    }
  }
  return text;
}

}  // namespace longhaul
