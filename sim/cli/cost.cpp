// longhaul cost: predicted kernel time of each row.
#include <unistd.h>

#include <iostream>
#include <iterator>
#include <memory>

#include "sim/cli/command.h"
#include "sim/cluster/device.h"
#include "sim/core/data_files.h"
#include "sim/cost/cost_rows.h"

namespace longhaul {
namespace {

struct Options {
  GlobalOptions global;
  std::string device;
  std::string rows = "-";
};

int cost(const Options& options) {
  std::string name = options.device;
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  const bool is_path = name.find('/') != std::string::npos || name.ends_with(".json");
  const Expected<DeviceSpec> device = read_device(is_path ? options.device : name, data_directory());
  if (!device) return wrong_input(device.error());
  const Expected<KernelModel> kernels = load_kernel_model(*device, data_directory());
  if (!kernels) return wrong_input(kernels.error());
  std::string csv;
  if (options.rows == "-") {
    csv.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    const std::optional<std::string> text = read_text_file(options.rows);
    if (!text) return wrong_input({{options.rows, "", "cannot be read", "a CSV file", ""}});
    csv = *text;
  }
  const Expected<std::string> rows =
      predict_rows(*kernels, csv, options.rows == "-" ? "<standard input>" : options.rows);
  if (!rows) return wrong_input(rows.error());
  print(*rows);
  return kExitDone;
}

}  // namespace

void add_cost(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("cost", "Predict the time of each kernel of a CSV");
  command->add_option("--device", options->device, "A shipped device (case ignored) or a file")->required();
  command->add_option("ROWS", options->rows, "CSV of kernels; - reads standard input")->capture_default_str();
  add_global_options(*command, options->global, "longhaul cost --device h200 rows.csv");
  command->callback([&action, options] { action = [options] { return cost(*options); }; });
}

}  // namespace longhaul
