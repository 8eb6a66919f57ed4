// longhaul collective: predicted time of each collective.
#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <iterator>
#include <memory>
#include <optional>

#include "sim/cli/command.h"
#include "sim/core/csv.h"
#include "sim/core/data_files.h"
#include "sim/network/collective_rows.h"

namespace longhaul {
namespace {

struct CollectiveArguments {
  GlobalOptions global;
  std::optional<std::string> topology;
  std::string rows = "-";
};

constexpr const char* kAdded[] = {"predicted_us", "predicted_busbw_GBps", "algorithm"};

std::string us_text(double us) { return fmt::format("{:.6f}", us); }
std::string rate_text(double rate) { return fmt::format("{:.6f}", rate); }

std::string csv_text(const CollectivePredictions& table) {
  std::vector<std::string> columns = table.columns;
  columns.insert(columns.end(), std::begin(kAdded), std::end(kAdded));
  std::string text = csv_line(columns) + "\n";
  for (const CollectivePrediction& row : table.rows) {
    std::vector<std::string> fields = row.fields;
    fields.insert(fields.end(), {us_text(row.us), rate_text(row.busbw_GBps), row.algorithm});
    text += csv_line(fields) + "\n";
  }
  return text;
}

// Input columns as they are given, as text.
std::string json_text(const CollectivePredictions& table) {
  Json json = {{"schema", "collectives/1"}, {"rows", Json::array()}};
  for (const CollectivePrediction& row : table.rows) {
    Json one = Json::object();
    for (std::size_t i = 0; i < table.columns.size(); ++i) one[table.columns[i]] = row.fields[i];
    one[kAdded[0]] = row.us;
    one[kAdded[1]] = row.busbw_GBps;
    one[kAdded[2]] = row.algorithm;
    json["rows"].push_back(std::move(one));
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// The columns that say what a call is, and the prediction.
std::string table_text(const CollectivePredictions& table) {
  std::vector<std::size_t> shown;
  for (const char* column : {"collective", "gpu", "n_gpu", "n_nodes", "fabric", "size_bytes"}) {
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      if (table.columns[i] == column) shown.push_back(i);
    }
  }
  std::vector<std::vector<std::string>> lines(1);
  for (const std::size_t column : shown) lines[0].push_back(table.columns[column]);
  lines[0].insert(lines[0].end(), {"us", "busbw GB/s", "algorithm"});
  for (const CollectivePrediction& row : table.rows) {
    lines.emplace_back();
    for (const std::size_t column : shown) lines.back().push_back(row.fields[column]);
    lines.back().insert(lines.back().end(),
                        {fmt::format("{:.2f}", row.us), fmt::format("{:.2f}", row.busbw_GBps), row.algorithm});
  }
  std::vector<std::size_t> widths(lines[0].size());
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    std::string out;
    for (std::size_t i = 0; i < line.size(); ++i) {
      // Numbers to the right, names to the left; nothing behind the last.
      const bool name =
          i + 1 == line.size() || lines[0][i] == "collective" || lines[0][i] == "gpu" || lines[0][i] == "fabric";
      out += i > 0 ? "  " : "";
      out += i + 1 == line.size() ? line[i]
             : name               ? fmt::format("{:<{}}", line[i], widths[i])
                                  : fmt::format("{:>{}}", line[i], widths[i]);
    }
    text += out + "\n";
  }
  return text;
}

Expected<std::string> read_rows(const std::string& rows) {
  if (rows == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  return read_input_file(rows, "a CSV file");
}

// Without --format: a table on a terminal, else CSV for whoever reads it.
Format collective_format(const GlobalOptions& options) {
  if (!options.format_name.empty()) return options.format();
  return isatty(STDOUT_FILENO) != 0 ? Format::kTable : Format::kCsv;
}

int collective(const CollectiveArguments& options) {
  std::optional<Topology> topology;
  if (options.topology) {
    Expected<Topology> read = read_topology(*options.topology, data_directory());
    if (!read) return wrong_input(read.error());
    topology = std::move(*read);
  }
  const Expected<std::string> csv = read_rows(options.rows);
  if (!csv) return wrong_input(csv.error());
  const std::string name = options.rows == "-" ? "<standard input>" : options.rows;
  const Expected<CollectivePredictions> table = predict_collectives(*csv, name, topology, data_directory());
  if (!table) return wrong_input(table.error());
  for (const std::string& note : table->notes) say(options.global, "note: " + note);
  switch (collective_format(options.global)) {
    case Format::kJson:
      print(json_text(*table));
      break;
    case Format::kCsv:
      print(csv_text(*table));
      break;
    case Format::kTable:
      print(table_text(*table));
      break;
  }
  return kExitDone;
}

}  // namespace

void add_collective(CLI::App& app, Action& action) {
  auto options = std::make_shared<CollectiveArguments>();
  CLI::App* command = app.add_subcommand("collective", "Predict the time of each collective of a CSV");
  command->add_option("--topology", options->topology,
                      "A shipped topology's name or a file: what all rows run on, whatever GPU and fabric they name "
                      "(default: the shipped one of each row's GPU, fabric and hosts)");
  command
      ->add_option("ROWS", options->rows,
                   "CSV with the columns collective,gpu,n_gpu,n_nodes,gpus_per_node,size_bytes and where known "
                   "fabric,nccl_version,harness,settings; others are kept; - reads standard input")
      ->capture_default_str();
  add_global_options(*command, options->global, "longhaul collective --format csv rows.csv");
  command->callback([&action, options] { action = [options] { return collective(*options); }; });
}

}  // namespace longhaul
