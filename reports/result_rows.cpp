#include "reports/result_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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
  for (const auto& [name, degree] : layout->items()) {
    if (!degree.is_number_integer() || degree.get<std::int64_t>() == 1) continue;
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name, degree.get<std::int64_t>());
  }
  return out;
}

std::optional<DoesNotFit> does_not_fit(const Json& row) {
  const Json* value = find(row, "does_not_fit");
  if (value == nullptr || (value->is_boolean() && !value->get<bool>())) return std::nullopt;
  DoesNotFit fault;
  fault.needed_bytes = number(*value, "needed_bytes");
  fault.limit_bytes = number(*value, "limit_bytes");
  if (const auto rank = number(*value, "rank")) fault.rank = static_cast<std::int64_t>(*rank);
  fault.category = words(text(*value, "category"));
  for (const char* key : {"smallest_change", "smallest_change_that_fits", "remedy"}) {
    if (fault.smallest_change.empty()) fault.smallest_change = text(*value, key);
  }
  return fault;
}

std::vector<std::string> notes(const Json& row) {
  std::vector<std::string> out;
  const Json* value = find(row, "notes");
  if (value == nullptr) return out;
  if (value->is_string()) return {value->get<std::string>()};
  for (const Json& note : *value) {
    if (note.is_string()) out.push_back(note.get<std::string>());
  }
  return out;
}

ResultRow read_row(const Json& json) {
  ResultRow row;
  row.name = text(json, "name");
  row.label = text(json, "label");
  if (row.label.empty()) row.label = row.name;
  row.layout = layout_text(json);
  row.step_ms = number(json, "step_time_ms");
  row.low_ms = number(json, "step_time_low_ms");
  row.high_ms = number(json, "step_time_high_ms");
  row.tokens_per_second_per_gpu = number(json, "tokens_per_second_per_gpu");
  row.mfu = number(json, "mfu");
  row.speedup = number(json, "speedup");
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

// The row with that label, else the first with that strategy name.
void mark_baseline(std::vector<ResultRow>& rows, const std::string& baseline) {
  for (const auto& field : {&ResultRow::label, &ResultRow::name}) {
    const auto found =
        std::find_if(rows.begin(), rows.end(), [&](const ResultRow& row) { return row.*field == baseline; });
    if (found == rows.end()) continue;
    found->baseline = true;
    return;
  }
}

}  // namespace

const ResultRow* ResultCase::baseline() const {
  const auto found = std::find_if(rows.begin(), rows.end(), [](const ResultRow& row) { return row.baseline; });
  return found == rows.end() ? nullptr : &*found;
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
    if (found == cases.end()) found = cases.insert(cases.end(), ResultCase{name, {}});
    found->rows.push_back(read_row(json));
  }
  for (ResultCase& one : cases) mark_baseline(one.rows, baseline_of(results, one.name));
  return cases;
}

}  // namespace longhaul
