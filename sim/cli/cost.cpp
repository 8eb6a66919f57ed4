// longhaul cost: predicted kernel time of each row.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>

#include "sim/cli/command.h"
#include "sim/cluster/device.h"
#include "sim/core/csv.h"
#include "sim/core/data_files.h"
#include "sim/cost/attention_library.h"
#include "sim/cost/cost_rows.h"

namespace longhaul {
namespace {

struct CostArguments {
  GlobalOptions global;
  std::string device;
  std::string rows = "-";
  std::string attention_library = attention_library_names().front();
};

// `kernels` with attention by the library. Errors: its name, or that it has no constants for the device.
Expected<KernelModel> with_library(const KernelModel& kernels, const std::string& name) {
  const std::vector<std::string>& names = attention_library_names();
  if (name == names.front()) return kernels;
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    return tl::unexpected(Errors{{"--attention-library", "", fmt::format("\"{}\" is no attention library", name),
                                  fmt::format("one of {}", fmt::join(names, ", ")), nearest_name(name, names)}});
  }
  const auto library = read_attention_library(name, data_directory());
  if (!library) return tl::unexpected(library.error());
  if ((*library)->runs_on(kernels.device())) return kernels.with_attention_library(*library);
  return tl::unexpected(
      Errors{{"--attention-library", "", fmt::format("\"{}\" has no constants for {}", name, kernels.device().name),
              fmt::format("GPUs of a generation among {}", fmt::join(library_generations(**library), ", ")), ""}});
}

// The input's fields as text, what was predicted as numbers.
std::string json_text(const CsvTable& table) {
  Json json = {{"schema", "cost/1"}, {"rows", Json::array()}};
  for (const CsvRow& row : table.rows) {
    Json one = Json::object();
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      const bool number = table.columns[i].ends_with("_ms") && i + 4 >= table.columns.size();
      one[table.columns[i]] = number ? Json::parse(row.fields[i]) : Json(row.fields[i]);
    }
    json["rows"].push_back(std::move(one));
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Columns in which no row has anything are left out.
std::string table_text(const CsvTable& table) {
  std::vector<std::vector<std::string>> lines = {{}};
  lines.resize(table.rows.size() + 1);
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    std::size_t width = 0;
    for (const CsvRow& row : table.rows) width = std::max(width, row.fields[i].size());
    if (width == 0) continue;
    width = std::max(width, table.columns[i].size());
    const bool last = i + 1 == table.columns.size();
    const auto cell = [&](const std::string& text) { return last ? text : fmt::format("{:>{}}", text, width); };
    lines[0].push_back(cell(table.columns[i]));
    for (std::size_t r = 0; r < table.rows.size(); ++r) lines[r + 1].push_back(cell(table.rows[r].fields[i]));
  }
  std::string text;
  for (const auto& line : lines) text += fmt::format("{}\n", fmt::join(line, "  "));
  return text;
}

// Without --format: a table on a terminal, else CSV for whoever reads it.
Format cost_format(const GlobalOptions& options) {
  if (!options.format_name.empty()) return options.format();
  return isatty(STDOUT_FILENO) != 0 ? Format::kTable : Format::kCsv;
}

int cost(const CostArguments& options) {
  std::string name = options.device;
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  const bool is_path = name.find('/') != std::string::npos || name.ends_with(".json");
  const Expected<DeviceSpec> device = read_device(is_path ? options.device : name, data_directory());
  if (!device) return wrong_input(device.error());
  const Expected<KernelModel> own = load_kernel_model(*device, data_directory());
  if (!own) return wrong_input(own.error());
  const Expected<KernelModel> kernels = with_library(*own, options.attention_library);
  if (!kernels) return wrong_input(kernels.error());
  std::string csv;
  if (options.rows == "-") {
    csv.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    const std::optional<std::string> text = read_text_file(options.rows);
    if (!text) return wrong_input({{options.rows, "", "cannot be read", "a CSV file", ""}});
    csv = *text;
  }
  const std::string file = options.rows == "-" ? "<standard input>" : options.rows;
  const Expected<std::string> rows = predict_rows(*kernels, csv, file);
  if (!rows) return wrong_input(rows.error());
  Errors errors;  // a column of the input that has the name of an added one
  const CsvTable table = read_csv(*rows, file, errors);
  if (!errors.empty()) return wrong_input(errors);
  const Format format = cost_format(options.global);
  print(format == Format::kCsv ? *rows : format == Format::kJson ? json_text(table) : table_text(table));
  return kExitDone;
}

}  // namespace

void add_cost(CLI::App& app, Action& action) {
  auto options = std::make_shared<CostArguments>();
  CLI::App* command = app.add_subcommand("cost", "Predict the time of each kernel of a CSV");
  command->add_option("--device", options->device, "A shipped device (case ignored) or a file")->required();
  command->add_option("ROWS", options->rows, "CSV of kernels; - reads standard input")->capture_default_str();
  command
      ->add_option("--attention-library", options->attention_library,
                   fmt::format("Attention by {}", fmt::join(attention_library_names(), ", ")))
      ->capture_default_str();
  add_global_options(*command, options->global, "longhaul cost --device h200 rows.csv");
  command->callback([&action, options] { action = [options] { return cost(*options); }; });
}

}  // namespace longhaul
