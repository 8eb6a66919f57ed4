#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/core/csv.h"
#include "sim/core/json.h"
#include "validate/accuracy/context_parallel.h"

namespace longhaul {
namespace {

const std::string& quantity_name(const PublishedNumber& number) {
  return published_quantities()[static_cast<std::size_t>(number.quantity)];
}

// Three decimals below 10, else one.
std::string value_text(double value) {
  return std::abs(value) < 10 ? fmt::format("{:.3f}", value) : fmt::format("{:.1f}", value);
}

// What the row lacks: the strategy's reason, the row's own need, or the table's where nothing is predicted.
std::string needs_of(const PublishedFigures& figures, const PublishedNumber& number,
                     const PublishedPrediction& prediction) {
  if (!prediction.refused.empty()) return prediction.refused;
  return number.needs.empty() && !prediction.predicted ? figures.tables[number.table].needs : number.needs;
}

std::string table_needs(const PublishedFigures& figures, const std::string& name) {
  for (const PublishedTable& table : figures.tables) {
    if (table.name == name) return table.needs;
  }
  return "";
}

std::string study_name(const PublishedFigures& figures, const PublishedNumber& number) {
  return number.study < 0 ? "" : figures.studies[static_cast<std::size_t>(number.study)].name;
}

std::string row_text(const PublishedNumber& number, const PublishedPrediction& prediction) {
  std::string out = fmt::format("  {:<14} {:<14} {:<26} {:>9}", number.case_name, number.what, quantity_name(number),
                                value_text(number.published));
  if (prediction.predicted) {
    const std::string ends = fmt::format("{}-{}", value_text(prediction.low), value_text(prediction.high));
    return out +
           fmt::format(" {:>9} {:>15} {:>+8.1f}\n", value_text(*prediction.predicted), ends, 100 * prediction.error);
  }
  const std::string why = prediction.refused.empty() ? number.needs : prediction.refused;
  return out + fmt::format(" {:>9}{}{}\n", "-", why.empty() ? "" : "  needs: ", why);
}

std::string summary_text(const PublishedSummary& summary) {
  std::string out = fmt::format("  {} numbers, {} reproduced", summary.numbers, summary.reproduced);
  if (summary.reproduced == 0) return out + "\n";
  return out + fmt::format("; error in %: median {:.1f}, 90th percentile {:.1f}, bias {:+.1f}\n", summary.median,
                           summary.p90, summary.bias);
}

std::string gate_value(const GateLine& gate) {
  return gate.is_median ? fmt::format("{:.1f} % of {} numbers", gate.value, gate.of)
                        : fmt::format("{:g} of {}", gate.value, gate.of);
}

std::string gates_text(const PublishedAccuracy& accuracy) {
  std::string out = "gates\n";
  for (const GateLine& gate : accuracy.gates) {
    out += fmt::format("  {:<28} {:<60} {:>22}  {}\n", gate.table, gate.what, gate_value(gate),
                       gate.met() ? "pass" : "MISS");
  }
  return out;
}

Json number_json(const PublishedFigures& figures, const PublishedNumber& number,
                 const PublishedPrediction& prediction) {
  Json out = {{"what", number.what}, {"quantity", quantity_name(number)}, {"published", number.published}};
  if (number.study >= 0) {
    out["study"] = study_name(figures, number);
    out["case"] = number.case_name;
    out["strategy"] = number.strategy;
    if (!number.over.empty()) out["over"] = number.over;
  }
  if (prediction.predicted) {
    out["predicted"] = *prediction.predicted;
    out["low"] = prediction.low;
    out["high"] = prediction.high;
    out["error_percent"] = 100 * prediction.error;
  }
  const std::string needs = needs_of(figures, number, prediction);
  if (!needs.empty()) out["needs"] = needs;
  return out;
}

Json gate_json(const GateLine& gate) {
  return {{"gate", gate.what},
          {gate.is_median ? "median_percent" : "hold", gate.value},
          {"limit", gate.limit},
          {"of", gate.of},
          {"met", gate.met()}};
}

}  // namespace

std::string published_table(const PublishedFigures& figures, const std::vector<PublishedPrediction>& predictions,
                            const PublishedAccuracy& accuracy) {
  std::string out = fmt::format("  {:<14} {:<14} {:<26} {:>9} {:>9} {:>15} {:>8}\n", "case", "method", "quantity",
                                "published", "predicted", "90 % interval", "error %");
  for (std::size_t t = 0; t < figures.tables.size(); ++t) {
    const PublishedTable& table = figures.tables[t];
    out += fmt::format("\n{}  ({})\n", table.name, table.source);
    if (!table.needs.empty()) out += "  needs: " + table.needs + "\n";
    for (std::size_t i = 0; i < predictions.size(); ++i) {
      if (figures.numbers[i].table == t) out += row_text(figures.numbers[i], predictions[i]);
    }
    out += summary_text(accuracy.summaries[t]);
  }
  return out + "\n" + gates_text(accuracy);
}

std::string published_json(const PublishedFigures& figures, const std::vector<PublishedPrediction>& predictions,
                           const PublishedAccuracy& accuracy) {
  Json tables = Json::array();
  for (std::size_t t = 0; t < figures.tables.size(); ++t) {
    Json numbers = Json::array();
    for (std::size_t i = 0; i < predictions.size(); ++i) {
      if (figures.numbers[i].table == t) numbers.push_back(number_json(figures, figures.numbers[i], predictions[i]));
    }
    Json gates = Json::array();
    for (const GateLine& gate : accuracy.gates) {
      if (gate.table == figures.tables[t].name) gates.push_back(gate_json(gate));
    }
    const PublishedSummary& summary = accuracy.summaries[t];
    Json one = {{"name", summary.table}, {"source", figures.tables[t].source}, {"reproduced", summary.reproduced}};
    if (summary.reproduced > 0) {
      one["median_percent"] = summary.median;
      one["p90_percent"] = summary.p90;
      one["bias_percent"] = summary.bias;
    }
    if (!figures.tables[t].needs.empty()) one["needs"] = figures.tables[t].needs;
    one["gates"] = gates;
    one["numbers"] = numbers;
    tables.push_back(std::move(one));
  }
  return Json({{"schema", "accuracy/1"}, {"table", "context-parallel"}, {"tables", tables}}).dump(2) + "\n";
}

std::string published_csv(const PublishedFigures& figures, const std::vector<PublishedPrediction>& predictions,
                          const PublishedAccuracy& accuracy) {
  const auto plain = [](double value) { return fmt::format("{:.6g}", value); };
  std::string out =
      "kind,table,what,study,case,strategy,over,quantity,published,predicted,low,high,error_percent,met,needs\n";
  for (std::size_t i = 0; i < predictions.size(); ++i) {
    const PublishedNumber& number = figures.numbers[i];
    const PublishedPrediction& one = predictions[i];
    const bool made = one.predicted.has_value();
    out += csv_line({"number", figures.tables[number.table].name, number.what, study_name(figures, number),
                     number.case_name, number.strategy, number.over, quantity_name(number), plain(number.published),
                     made ? plain(*one.predicted) : "", made ? plain(one.low) : "", made ? plain(one.high) : "",
                     made ? fmt::format("{:.2f}", 100 * one.error) : "", "", needs_of(figures, number, one)}) +
           "\n";
  }
  for (const GateLine& gate : accuracy.gates) {
    const std::string needs = gate.met() ? "" : table_needs(figures, gate.table);
    out += csv_line({"gate", gate.table, gate.what, "", "", "", "", gate.is_median ? "median_percent" : "hold",
                     plain(gate.limit), plain(gate.value), "", "", "", gate.met() ? "yes" : "no", needs}) +
           "\n";
  }
  return out;
}

}  // namespace longhaul
