#include "sim/study/results_json.h"

#include <fmt/format.h>

#include <algorithm>

namespace longhaul {
namespace {

double ms(Time time) { return static_cast<double>(time.ps()) / 1e9; }

Json split_json(const TimeSplit& split) {
  Json json = Json::object();
  for (int part = 0; part < kTimePartCount; ++part) {
    json[to_string(static_cast<TimePart>(part))] = ms(split[static_cast<TimePart>(part)]);
  }
  return json;
}

Json spread_json(const Spread& spread) { return {{"min", spread.min}, {"mean", spread.mean}, {"max", spread.max}}; }

Json memory_json(const MemoryByCategory& categories) {
  Json json = Json::object();
  for (int i = 0; i < kMemoryCategoryCount; ++i) {
    json[to_string(static_cast<MemoryCategory>(i))] = categories[static_cast<std::size_t>(i)];
  }
  return json;
}

Json layout_json(const EntryResult& entry) {
  Json json = {{"pp", entry.degrees.pp}, {"cp", entry.degrees.cp}, {"sp", entry.degrees.sp}, {"dp", entry.degrees.dp}};
  if (entry.best) {
    json["layouts_legal"] = entry.layouts_legal;
    json["layouts_simulated"] = entry.layouts_simulated;
  }
  return json;
}

Json ranks_json(const StepSummary& summary) {
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < summary.ranks.size(); ++rank) {
    const RankSummary& of = summary.ranks[rank];
    ranks.push_back({{"rank", rank},
                     {"compute_ms", ms(of.compute)},
                     {"contention_ms", ms(of.split[TimePart::kContention])},
                     {"exposed_communication_ms", ms(of.split[TimePart::kExposedCommunication])},
                     {"bubble_ms", ms(of.split[TimePart::kBubble])},
                     {"imbalance_ms", ms(of.split[TimePart::kImbalance])},
                     {"launch_ms", ms(of.split[TimePart::kLaunch])},
                     {"tail_ms", ms(of.split[TimePart::kTail])},
                     {"peak_memory_bytes", of.peak_bytes},
                     {"sent_intra_node", of.sent_intra_node},
                     {"sent_inter_node", of.sent_inter_node}});
  }
  return ranks;
}

Json does_not_fit_json(const DoesNotFit& fault) {
  Json json = {{"needed_bytes", fault.needed_bytes},
               {"limit_bytes", fault.limit_bytes},
               {"rank", fault.rank},
               {"category", to_string(fault.category)}};
  json["smallest_change"] = fault.change.empty() ? Json() : Json(fault.change);
  json["checked"] = fault.checked;
  return json;
}

Json number_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

void add_summary(const EntryResult& entry, const CaseResult& of, Json& json) {
  const StepSummary& summary = *entry.summary;
  json["step_time_ms"] = ms(summary.step);
  json["step_time_low_ms"] = ms(summary.low);
  json["step_time_high_ms"] = ms(summary.high);
  if (summary.steps > 1) {
    json["steps"] = summary.steps;
    json["step_time_p10_ms"] = ms(summary.p10);
    json["step_time_p90_ms"] = ms(summary.p90);
  }
  json["tokens_per_second_per_gpu"] = summary.tokens_per_second_per_gpu;
  json["mfu"] = summary.mfu;
  json["speedup"] = number_or_null(entry.speedup);
  if (entry.over_baseline) {
    json["speedup_low"] = entry.over_baseline->low;
    json["speedup_high"] = entry.over_baseline->high;
  }
  if (entry.over_winner) {
    json["over_winner"] = {
        {"ratio", entry.over_winner->value}, {"low", entry.over_winner->low}, {"high", entry.over_winner->high}};
  }
  json["speedup_own"] = number_or_null(entry.speedup_own);
  json["own_baseline"] = entry.own_baseline;
  if (!entry.own_alternative.empty()) {
    json["speedup_own_alternative"] = number_or_null(entry.speedup_own_alternative);
    json["own_alternative"] = entry.own_alternative;
  }
  json["bound_by"] = summary.bound_by;
  json["time_ms"] = split_json(summary.split);
  json["compute_ms"] = {{"attention", ms(summary.compute.attention)},
                        {"gemm", ms(summary.compute.gemm)},
                        {"memory", ms(summary.compute.memory)}};
  json["critical_rank"] = summary.critical_rank;
  json["peak_memory_bytes"] = summary.peak_bytes;
  json["peak_rank"] = summary.peak_rank;
  json["memory_limit_bytes"] = of.setup->memory_limit();
  json["headroom_bytes"] = of.setup->memory_limit() - summary.peak_bytes;
  json["memory_bytes"] = memory_json(summary.peak_categories);
  json["bytes_sent"] = {{"intra_node", spread_json(summary.intra_node)},
                        {"inter_node", spread_json(summary.inter_node)}};
  json["imbalance"] = summary.imbalance;
  json["ranks"] = ranks_json(summary);
}

bool is_milliseconds(const std::string& key) { return key.size() > 3 && key.compare(key.size() - 3, 3, "_ms") == 0; }

std::string scalar_text(const Json& value, bool milliseconds) {
  if (!value.is_number_float()) return value.dump();
  return milliseconds ? fmt::format("{:.9f}", value.get<double>()) : fmt::format("{}", value.get<double>());
}

std::string compact_text(const Json& value, bool milliseconds) {
  if (!value.is_structured()) return scalar_text(value, milliseconds);
  std::string text;
  for (const auto& [key, child] : value.items()) {
    if (!text.empty()) text += ", ";
    if (value.is_object()) text += Json(key).dump() + ": ";
    text += compact_text(child, milliseconds || (value.is_object() && is_milliseconds(key)));
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

bool is_flat(const Json& value) {
  return std::none_of(value.begin(), value.end(), [](const Json& child) { return child.is_structured(); });
}

constexpr std::size_t kColumns = 120;

bool holds_values_and_pairs(const Json& list) {
  return std::all_of(list.begin(), list.end(), [](const Json& child) {
    return !child.is_structured() || (child.is_array() && child.size() <= 2 && is_flat(child));
  });
}

void write_filled(const Json& list, bool milliseconds, std::size_t indent, std::string& out) {
  const std::string margin = "\n" + std::string(indent + 2, ' ');
  std::size_t column = kColumns;  // the first begins a line
  out += "[";
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string text = compact_text(list[i], milliseconds) + (i + 1 < list.size() ? "," : "");
    if (column + text.size() > kColumns) {
      out += margin;
      column = indent + 2;
    }
    out += text;
    column += text.size();
  }
  out += "\n" + std::string(indent, ' ') + "]";
}

struct Layout {
  LongLists lists;
  bool milliseconds;  // what stands below is
};

// `row`: the value is an element of a list, so that a flat object is one line however long.
void write_value(const Json& value, const Layout& layout, bool row, std::size_t indent, std::size_t used,
                 std::string& out) {
  const bool milliseconds = layout.milliseconds;
  const std::string compact = compact_text(value, milliseconds);
  if (!value.is_structured() || value.empty() || used + compact.size() < kColumns ||
      (row && value.is_object() && is_flat(value))) {
    out += compact;
    return;
  }
  if (layout.lists == LongLists::kFilled && value.is_array() && holds_values_and_pairs(value)) {
    write_filled(value, milliseconds, indent, out);
    return;
  }
  out += value.is_object() ? "{" : "[";
  bool first = true;
  for (const auto& [key, child] : value.items()) {
    out += first ? "\n" : ",\n";
    first = false;
    out += std::string(indent + 2, ' ');
    std::size_t column = indent + 2;
    if (value.is_object()) {
      const std::string name = Json(key).dump() + ": ";
      out += name;
      column += name.size();
    }
    const bool below = milliseconds || (value.is_object() && is_milliseconds(key));
    write_value(child, {layout.lists, below}, value.is_array(), indent + 2, column, out);
  }
  out += "\n" + std::string(indent, ' ') + (value.is_object() ? "}" : "]");
}

}  // namespace

const char* longhaul_version() { return LONGHAUL_VERSION; }

Json entry_json(const EntryResult& entry, const CaseResult& of) {
  Json json = {{"name", entry.label}, {"case", entry.case_name}, {"strategy", entry.strategy}};
  if (entry.hidden) json["hidden"] = true;
  if (!entry.note.empty()) json["note"] = entry.note;
  json["micro_batch_sequences"] = entry.micro_batch_sequences;
  if (!entry.not_applicable.empty()) {
    json["not_applicable"] = entry.not_applicable;
    return json;
  }
  json["layout"] = layout_json(entry);
  if (entry.does_not_fit) json["does_not_fit"] = does_not_fit_json(*entry.does_not_fit);
  if (entry.summary) add_summary(entry, of, json);
  return json;
}

Json results_json(const Study& study, const StudyResult& result) {
  Json json = {{"schema", "results/1"}, {"version", longhaul_version()}};
  Json calibrations = Json::array();
  Json seeds = Json::array();
  Json winners = Json::array();
  Json strategies = Json::array();
  for (std::size_t i = 0; i < result.cases.size(); ++i) {
    const CaseResult& one = result.cases[i];
    const KernelModel& kernels = one.setup->kernels;
    Json calibration = {{"case", one.name},
                        {"name", kernels.calibration_name()},
                        {"date", kernels.calibration_date()},
                        {"description", kernels.description()},
                        {"collectives", "topologies/nccl.json, errors of topologies/nccl-residuals.json"}};
    calibrations.push_back(std::move(calibration));
    seeds.push_back(study.cases[i].documents.seed);
    winners.push_back(
        {{"case", one.name},
         {"name", one.winner < 0 ? Json() : Json(one.entries[static_cast<std::size_t>(one.winner)].label)},
         {"baseline", one.baseline}});
    for (const EntryResult& entry : one.entries) strategies.push_back(entry_json(entry, one));
  }
  json["calibration"] = std::move(calibrations);
  json["seed"] = seeds.size() == 1 ? seeds.front() : seeds;
  json["study"] = study.resolved;
  json["winners"] = std::move(winners);
  json["strategies"] = std::move(strategies);
  return json;
}

std::string results_text(const Json& results, LongLists lists) {
  std::string text;
  write_value(results, {lists, false}, false, 0, 0, text);
  text += "\n";
  return text;
}

}  // namespace longhaul
