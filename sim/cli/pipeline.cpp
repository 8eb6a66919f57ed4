// longhaul pipeline: a pipeline schedule alone.
#include <fmt/format.h>

#include <memory>

#include "sim/cli/command.h"
#include "sim/strategies/pipeline/report.h"

namespace longhaul {
namespace {

struct PipelineArguments {
  GlobalOptions global;
  PipelineRequest request;
};

std::string pipeline_csv(const PipelineReport& report) {
  std::string text = "stage,peak_units,busy_us,makespan_us,bubble_rate\n";
  for (std::size_t stage = 0; stage < report.peak_units.size(); ++stage) {
    text += fmt::format("{},{},{},{},{}\n", stage, report.peak_units[stage], report.run.busy[stage].us(),
                        report.makespan_us, report.bubble_rate);
  }
  return text;
}

std::string pipeline_table(const PipelineReport& report) {
  std::string text =
      fmt::format("{}: {} stages, {} {}\nmakespan {:.3f} us, bubble rate {:.2f} %\n\n", report.request.schedule,
                  report.request.stages, report.units, report.request.schedule == "dpp" ? "slices" : "micro-batches",
                  report.makespan_us, 100 * report.bubble_rate);
  text += "  stage  peak units     busy us\n";
  for (std::size_t stage = 0; stage < report.peak_units.size(); ++stage) {
    text +=
        fmt::format("  {:>5}  {:>10.2f}  {:>10.3f}\n", stage, report.peak_units[stage], report.run.busy[stage].us());
  }
  return text + "\n" + pipeline_diagram(report);
}

int pipeline(const PipelineArguments& options) {
  const Expected<PipelineReport> report = report_pipeline(options.request);
  if (!report) return wrong_input(report.error());
  switch (options.global.format()) {
    case Format::kJson:
      print(pipeline_report_json(*report).dump(2) + "\n");
      break;
    case Format::kCsv:
      print(pipeline_csv(*report));
      break;
    case Format::kTable:
      print(pipeline_table(*report));
      break;
  }
  return kExitDone;
}

}  // namespace

void add_pipeline(CLI::App& app, Action& action) {
  auto options = std::make_shared<PipelineArguments>();
  PipelineRequest& request = options->request;
  CLI::App* command =
      app.add_subcommand("pipeline", "Run a pipeline schedule alone: makespan, bubble, memory, diagram");
  command
      ->add_option("--schedule", request.schedule, fmt::format("One of {}", fmt::join(pipeline_schedule_names(), ", ")))
      ->required();
  command->add_option("--stages", request.stages, "Stages P")->required();
  command->add_option("--microbatches", request.microbatches, "Micro-batches M");
  command->add_option("--forward-us", request.forward_us, "Forward of a stage and micro-batch")->required();
  command->add_option("--backward-input-us", request.backward_input_us, "Backward for the input")->required();
  command->add_option("--backward-weight-us", request.backward_weight_us, "Backward for the weights")->required();
  command->add_option("--p2p-us", request.p2p_us, "Latency between stages")->capture_default_str();
  command->add_option("--slices", request.slices, "Slices a sequence; for dpp one count a sequence")->delimiter(',');
  command->add_option("--chunks-per-stage", request.chunks_per_stage, "Layer groups a stage")->capture_default_str();
  add_global_options(*command, options->global,
                     "longhaul pipeline --schedule 1f1b --stages 4 --microbatches 8 --forward-us 10\n"
                     "      --backward-input-us 10 --backward-weight-us 10");
  command->callback([&action, options] { action = [options] { return pipeline(*options); }; });
}

}  // namespace longhaul
