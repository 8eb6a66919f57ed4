#include "reports/result_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/format.h"
#include "sim/core/json.h"

namespace longhaul {
namespace {

const Json* find(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::optional<double> number(const Json& object, std::string_view key) {
  const Json* value = find(object, key);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  const auto read = value->get<double>();
  return std::isfinite(read) ? std::optional(read) : std::nullopt;
}

std::string text(const Json& object, std::string_view key) {
  const Json* value = find(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

NamedValues named_values(const Json& object, std::string_view key) {
  NamedValues values;
  const Json* parts = find(object, key);
  if (parts == nullptr || !parts->is_object()) return values;
  for (const auto& [name, value] : parts->items()) {
    if (value.is_number() && std::isfinite(value.get<double>())) values.emplace_back(name, value.get<double>());
  }
  return values;
}

// {"min", "mean", "max"}, or one number that is all three.
std::optional<SentBytes> sent_bytes(const Json& object, std::string_view key) {
  if (const auto all = number(object, key)) return SentBytes{*all, *all, *all};
  const Json* spread = find(object, key);
  if (spread == nullptr) return std::nullopt;
  const auto mean = number(*spread, "mean");
  if (!mean) return std::nullopt;
  return SentBytes{number(*spread, "min").value_or(*mean), *mean, number(*spread, "max").value_or(*mean)};
}

// {"tp": 1, "cp": 8, "dp": 2} -> "cp 8, dp 2"; degrees of 1 say nothing unless all are 1. Text stays as it is.
std::string layout_text(const Json& row) {
  const Json* layout = find(row, "layout");
  if (layout == nullptr) return "";
  if (layout->is_string()) return layout->get<std::string>();
  std::string out;
  for (const char* name : {"tp", "pp", "cp", "sp", "dp", "ep"}) {
    const auto degree = number(*layout, name);
    if (degree && *degree != 1) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name, *degree);
  }
  return out.empty() ? "1 GPU" : out;
}

std::optional<FitFault> does_not_fit(const Json& row) {
  const Json* value = find(row, "does_not_fit");
  if (value == nullptr || (value->is_boolean() && !value->get<bool>())) return std::nullopt;
  FitFault fault;
  fault.needed_bytes = number(*value, "needed_bytes");
  fault.limit_bytes = number(*value, "limit_bytes");
  if (const auto rank = number(*value, "rank")) fault.rank = static_cast<std::int64_t>(*rank);
  fault.category = words(text(*value, "category"));
  fault.smallest_change = text(*value, "smallest_change");
  return fault;
}

// "note", and what is worth saying of the row besides its figures.
std::vector<std::string> notes(const Json& row) {
  std::vector<std::string> out;
  if (const std::string note = text(row, "note"); !note.empty()) out.push_back(note);
  if (const std::string other = text(row, "own_alternative"); !other.empty()) {
    if (const auto ratio = number(row, "speedup_own_alternative")) {
      out.push_back(fmt::format("{} against {}", format_ratio(*ratio), other));
    }
  }
  const auto steps = number(row, "steps"), p10 = number(row, "step_time_p10_ms"), p90 = number(row, "step_time_p90_ms");
  if (steps && p10 && p90) {
    out.push_back(fmt::format("means over {} batches; 10th to 90th percentile of the step time: {} to {}", *steps,
                              format_duration(*p10), format_duration(*p90)));
  }
  if (const Json* layout = find(row, "layout"); layout != nullptr) {
    const auto legal = number(*layout, "layouts_legal"), simulated = number(*layout, "layouts_simulated");
    if (legal && simulated) {
      out.push_back(*simulated < *legal
                        ? fmt::format("the best of {} legal layouts, {} simulated; lower bounds rule out the others",
                                      *legal, *simulated)
                        : fmt::format("the best of {} legal layouts, all simulated", *legal));
    }
  }
  return out;
}

ResultRow read_row(const Json& json) {
  ResultRow row;
  row.label = text(json, "name");
  row.strategy = text(json, "strategy");
  if (row.strategy.empty()) row.strategy = row.label;
  row.layout = layout_text(json);
  row.step_ms = number(json, "step_time_ms");
  row.low_ms = number(json, "step_time_low_ms");
  row.high_ms = number(json, "step_time_high_ms");
  row.tokens_per_second_per_gpu = number(json, "tokens_per_second_per_gpu");
  row.mfu = number(json, "mfu");
  row.speedup = number(json, "speedup");
  row.speedup_low = number(json, "speedup_low");
  row.speedup_high = number(json, "speedup_high");
  if (const Json* over = find(json, "over_winner")) {
    row.over_winner = number(*over, "ratio");
    row.over_winner_low = number(*over, "low");
  }
  row.speedup_own = number(json, "speedup_own");
  row.own_baseline = text(json, "own_baseline");
  row.imbalance = number(json, "imbalance");
  row.bound_by = text(json, "bound_by");
  row.time_ms = named_values(json, "time_ms");
  row.peak_bytes = number(json, "peak_memory_bytes");
  row.limit_bytes = number(json, "memory_limit_bytes");
  row.headroom_bytes = number(json, "headroom_bytes");
  if (!row.headroom_bytes && row.limit_bytes && row.peak_bytes) row.headroom_bytes = *row.limit_bytes - *row.peak_bytes;
  row.memory_bytes = named_values(json, "memory_bytes");
  if (const Json* sent = find(json, "bytes_sent")) {
    row.sent_intra_node = sent_bytes(*sent, "intra_node");
    row.sent_inter_node = sent_bytes(*sent, "inter_node");
  }
  if (const std::string why = text(json, "not_applicable"); !why.empty()) row.not_applicable = why;
  row.does_not_fit = does_not_fit(json);
  row.notes = notes(json);
  return row;
}

// The baseline that the study names for a case: its own, else the study's.
std::string baseline_of(const Json& results, const std::string& case_name) {
  const Json* study = find(results, "study");
  if (study == nullptr) return "";
  if (const Json* cases = find(*study, "cases"); cases != nullptr && cases->is_array()) {
    for (const Json& one : *cases) {
      if (text(one, "name") == case_name && find(one, "baseline") != nullptr) return text(one, "baseline");
    }
  }
  return text(*study, "baseline");
}

bool mark_baseline(std::vector<ResultRow>& rows, const std::string& label) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const ResultRow& row) { return row.label == label; });
  if (found != rows.end()) found->baseline = true;
  return found != rows.end();
}

const ResultRow* marked_baseline(const std::vector<ResultRow>& rows) {
  const auto found = std::find_if(rows.begin(), rows.end(), [](const ResultRow& row) { return row.baseline; });
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace

const ResultRow* ResultCase::baseline() const {
  const ResultRow* shown = marked_baseline(rows);
  return shown != nullptr ? shown : marked_baseline(hidden);
}

std::string words(const std::string& key) {
  std::string out = key;
  std::replace(out.begin(), out.end(), '_', ' ');
  return out;
}

std::vector<ResultCase> read_result_rows(const Json& results) {
  std::vector<ResultCase> cases;
  const Json* strategies = find(results, "strategies");
  if (strategies == nullptr || !strategies->is_array()) return cases;
  for (const Json& json : *strategies) {
    const std::string name = text(json, "case");
    auto found = std::find_if(cases.begin(), cases.end(), [&](const ResultCase& one) { return one.name == name; });
    if (found == cases.end()) found = cases.insert(cases.end(), ResultCase{name, {}, {}});
    const Json* hidden = find(json, "hidden");
    const bool hide = hidden != nullptr && hidden->is_boolean() && hidden->get<bool>();
    (hide ? found->hidden : found->rows).push_back(read_row(json));
  }
  for (ResultCase& one : cases) {
    const std::string label = baseline_of(results, one.name);
    if (!mark_baseline(one.rows, label)) mark_baseline(one.hidden, label);
  }
  return cases;
}

}  // namespace longhaul
