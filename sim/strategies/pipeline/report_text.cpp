#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sim/core/invariant.h"
#include "sim/strategies/pipeline/report.h"

namespace longhaul {
namespace {

using Json = nlohmann::ordered_json;

struct SlotName {
  std::int32_t sequence = 0;
  std::int32_t slice = 0;
};

// Sequence (micro-batch) and slice of every chunk, from the slice links.
std::vector<SlotName> slot_names(const PipelineOrder& order) {
  std::vector<SlotName> names;
  std::int32_t sequence = -1;
  for (const std::int32_t previous : order.previous_slice) {
    if (previous < 0) {
      names.push_back({++sequence, 0});
    } else {
      names.push_back({sequence, names.back().slice + 1});
    }
  }
  return names;
}

Json stage_ops_json(const PipelineReport& report, std::size_t stage, const std::vector<SlotName>& names) {
  Json ops = Json::array();
  for (std::size_t i = 0; i < report.order.stages[stage].size(); ++i) {
    const PipelineOp& op = report.order.stages[stage][i];
    const SlotName& name = names[static_cast<std::size_t>(op.chunk)];
    ops.push_back({{"pass", op.pass == PipelinePass::kForward ? "forward" : "backward"},
                   {"microbatch", name.sequence},
                   {"slice", name.slice},
                   {"start_us", exact_us(report.run.spans[stage][i].start)},
                   {"end_us", exact_us(report.run.spans[stage][i].end)}});
  }
  return ops;
}

std::string diagram_row(const PipelineReport& report, std::size_t stage, std::int32_t columns) {
  std::string row(static_cast<std::size_t>(columns), '.');
  const auto makespan = static_cast<double>(report.run.makespan.ps());
  std::size_t at = 0;
  const std::vector<PipelineSpan>& spans = report.run.spans[stage];
  for (std::int32_t column = 0; column < columns; ++column) {
    const double middle = makespan * (column + 0.5) / columns;
    while (at < spans.size() && static_cast<double>(spans[at].end.ps()) <= middle) ++at;
    if (at == spans.size() || static_cast<double>(spans[at].start.ps()) > middle) continue;
    const PipelineOp& op = report.order.stages[stage][at];
    const char base = op.pass == PipelinePass::kForward ? '0' : 'a';
    row[static_cast<std::size_t>(column)] = static_cast<char>(base + op.chunk % 10);
  }
  return row;
}

}  // namespace

Json pipeline_report_json(const PipelineReport& report) {
  const PipelineRequest& request = report.request;
  Json json = {{"schedule", request.schedule},
               {"stages", request.stages},
               {"microbatches", *request.microbatches},
               {"slices", request.slices},
               {"forward_us", request.forward_us},
               {"backward_input_us", request.backward_input_us},
               {"backward_weight_us", request.backward_weight_us},
               {"p2p_us", request.p2p_us},
               {"makespan_us", report.makespan_us},
               {"bubble_rate", report.bubble_rate},
               {"peak_units", report.peak_units}};
  const std::vector<SlotName> names = slot_names(report.order);
  Json busy = Json::array();
  Json ops = Json::array();
  for (std::size_t stage = 0; stage < report.order.stages.size(); ++stage) {
    busy.push_back(exact_us(report.run.busy[stage]));
    ops.push_back(stage_ops_json(report, stage, names));
  }
  json["busy_us"] = std::move(busy);
  json["ops"] = std::move(ops);
  return json;
}

std::string pipeline_diagram(const PipelineReport& report, std::int32_t columns) {
  LH_ASSERT(columns >= 1, "{} columns", columns);
  std::string text;
  for (std::size_t stage = 0; stage < report.order.stages.size(); ++stage) {
    text += fmt::format("stage {:>3} |{}|\n", stage, diagram_row(report, stage, columns));
  }
  text += fmt::format("one column = {} us; 0-9 forward and a-j backward of chunk number modulo 10; . idle\n",
                      report.makespan_us / columns);
  return text;
}

}  // namespace longhaul
