#include "validate/fit/collectives/collective_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "sim/core/data_files.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

constexpr double kSmallest = 256;
constexpr double kLaunchBound = 1024.0 * 1024;  // calls shorter than this wait for the host that launches them
constexpr const char* kPlateaus = "gtc_slide_peak_busbw";

// What stands behind `mark` at the beginning of a comment line; empty if there is none.
std::string remark(const std::string& text, const std::string& mark) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(mark)) return line.substr(mark.size());
  }
  return "";
}

}  // namespace

NcclTime predict(const NcclConstants& constants, const CollectiveMeasurement& measured) {
  NcclTime time = nccl_time(constants, measured.machine, measured.plan);
  time.fixed_us += harness_us(constants, measured.row, time.channels, time.total_us());
  return time;
}

Expected<CollectiveTable> parse_collective_table(const std::string& text, const std::string& file,
                                                 RowMachines& machines) {
  Errors errors;
  CollectiveTable table;
  table.name = fs::path(file).stem().string();
  table.not_fitted = remark(text, "# not fitted: ");
  table.harness_only = remark(text, "# fitted to the harness alone: ");
  table.hard = remark(text, "# hard: ");
  const Expected<std::vector<CollectiveRow>> rows = parse_collective_rows(text, file);
  if (!rows) return tl::unexpected(rows.error());
  const bool nvls_off = text.find("\n# NCCL_NVLS_ENABLE=0\n") != std::string::npos;
  for (CollectiveRow row : *rows) {
    row.nvls_off = row.nvls_off || nvls_off;
    if (row.bytes < kSmallest) continue;
    if (!row.measured_us) {
      errors.push_back(
          {file, fmt::format("line {}", row.line), "has no measured time", "oop_time_us or ip_time_us", ""});
      continue;
    }
    const Expected<NcclMachine> machine = machines.machine(row, file);
    if (!machine) return tl::unexpected(machine.error());
    table.rows.push_back(
        {row, *machine, *row.measured_us, nccl_plan(*machine, call_of(row, *machine)), !table.harness_only.empty()});
  }
  if (errors.empty() && table.rows.empty()) errors.push_back({file, "", "holds no rows", "measured times", ""});
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return table;
}

Expected<std::vector<CollectiveTable>> read_collective_tables(const std::string& directory,
                                                              const std::string& data_directory) {
  std::vector<std::string> files;
  std::error_code fault;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, fault)) {
    if (entry.path().extension() == ".csv" && entry.path().stem() != kPlateaus) files.push_back(entry.path().string());
  }
  if (files.empty()) {
    return tl::unexpected(Errors{{directory, "", "holds no tables", "a folder of measured collectives (*.csv)", ""}});
  }
  std::sort(files.begin(), files.end());
  Errors errors;
  RowMachines machines(data_directory);
  std::vector<CollectiveTable> tables;
  for (const std::string& file : files) {
    const Expected<std::string> text = read_input_file(file, "a table of measured collectives");
    Expected<CollectiveTable> table =
        text ? parse_collective_table(*text, file, machines) : tl::unexpected(text.error());
    if (table) {
      tables.push_back(std::move(*table));
    } else {
      append(errors, table.error());
    }
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return tables;
}

Expected<std::vector<CollectiveTable>> read_held_out_tables(const std::string& data_directory) {
  Errors errors;
  RowMachines machines(data_directory);
  std::vector<CollectiveTable> tables;
  for (const bool graph : {true, false}) {
    const std::string name = graph ? "collectives_graph" : "collectives";
    const std::string file = fmt::format("{}/validate/data/h200x2/{}.csv", data_directory, name);
    const Expected<std::string> text = read_input_file(file, "a table of measured collectives");
    Expected<CollectiveTable> table =
        text ? parse_collective_table(*text, file, machines) : tl::unexpected(text.error());
    if (!table) {
      append(errors, table.error());
      continue;
    }
    table->name = "h200x2_" + name;
    table->not_fitted = "held out: measured by this project to check with";
    table->held_out = true;
    std::erase_if(table->rows, [&](const CollectiveMeasurement& m) { return graph != (m.row.bytes < kLaunchBound); });
    tables.push_back(std::move(*table));
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return tables;
}

Expected<std::vector<CollectiveTable>> read_all_collective_tables(const std::string& data_directory) {
  Expected<std::vector<CollectiveTable>> all =
      read_collective_tables(data_directory + "/validate/data/collectives", data_directory);
  Expected<std::vector<CollectiveTable>> held_out = read_held_out_tables(data_directory);
  if (all && held_out) {
    std::move(held_out->begin(), held_out->end(), std::back_inserter(*all));
    return all;
  }
  Errors errors = all ? Errors{} : all.error();
  if (!held_out) append(errors, held_out.error());
  return tl::unexpected(std::move(errors));
}

}  // namespace longhaul
