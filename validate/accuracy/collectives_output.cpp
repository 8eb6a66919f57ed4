#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "sim/core/csv.h"
#include "sim/core/json.h"
#include "validate/accuracy/collectives.h"

namespace longhaul {
namespace {

std::string band_text(const ErrorBand& band) {
  if (band.rows == 0) return "-";
  return fmt::format("{:.1f} / {:.1f} ({}){}", band.median, band.p90, band.rows,
                     !band.target_median ? ""
                     : band.met()        ? " ok"
                                         : " MISS");
}

std::string groups_text(const CollectiveAccuracy& accuracy) {
  std::string out = fmt::format("{:<46}", "median / p90 of the error in % (rows)");
  for (const ErrorBand& band : accuracy.groups.front().bands) out += fmt::format(" {:>22}", band.name);
  out += '\n';
  for (const ErrorGroup& group : accuracy.groups) {
    out += fmt::format("{:<46}", group.name);
    for (const ErrorBand& band : group.bands) out += fmt::format(" {:>22}", band_text(band));
    out += '\n';
  }
  return out;
}

std::string tables_text(const CollectiveAccuracy& accuracy) {
  std::string out = fmt::format("{:<46} {:>5} {:>8} {:>7} {:>8}\n", "table", "rows", "median", "p90", "bias");
  for (const TableError& table : accuracy.tables) {
    out +=
        fmt::format("{:<46} {:>5} {:>8.1f} {:>7.1f} {:>+8.1f}{}{}\n", table.name, table.rows, table.median, table.p90,
                    table.bias, table.misses ? "  MISS" : "", table.reason.empty() ? "" : "  " + table.reason);
  }
  return out;
}

Json band_json(const ErrorBand& band) {
  Json out = {{"band", band.name}, {"rows", band.rows}};
  if (band.rows > 0) {
    out["median_percent"] = band.median;
    out["p90_percent"] = band.p90;
  }
  if (band.target_median) {
    out["target_median_percent"] = *band.target_median;
    out["target_p90_percent"] = *band.target_p90;
    out["met"] = band.met();
  }
  return out;
}

Json part_json(const CollectiveAccuracy& accuracy) {
  Json groups = Json::array();
  for (const ErrorGroup& group : accuracy.groups) {
    Json bands = Json::array();
    for (const ErrorBand& band : group.bands) bands.push_back(band_json(band));
    groups.push_back({{"group", group.name}, {"bands", bands}});
  }
  Json tables = Json::array();
  for (const TableError& table : accuracy.tables) {
    tables.push_back({{"table", table.name},
                      {"rows", table.rows},
                      {"median_percent", table.median},
                      {"p90_percent", table.p90},
                      {"bias_percent", table.bias},
                      {"misses", table.misses},
                      {"reason", table.reason}});
  }
  return {{"groups", groups}, {"tables", tables}};
}

constexpr const char* kGroupColumns =
    "left_out,kind,name,band,rows,median_percent,p90_percent,target_median,target_p90,reason,";
constexpr const char* kRowColumns =
    "line,collective,gpu,n_gpu,n_nodes,size_bytes,measured_us,predicted_us,error_percent,algorithm\n";

// Of a line about several rows: no fields of one.
std::string without_row(std::vector<std::string> fields) {
  fields.resize(20);
  return csv_line(fields) + "\n";
}

std::string row_csv(const std::string& left_out, const std::string& table, const RowError& error) {
  const CollectiveRow& row = error.row->row;
  std::vector<std::string> fields = {left_out, "row", table};
  fields.resize(10);
  const std::string algorithm =
      fmt::format("{} {}", nccl_name(error.predicted.algorithm), nccl_name(error.predicted.protocol));
  for (const std::string& field :
       {std::to_string(row.line), std::string(nccl_name(row.collective)), row.gpu, std::to_string(row.ranks),
        std::to_string(row.nodes), fmt::format("{:.0f}", row.bytes), fmt::format("{}", error.row->measured_us),
        fmt::format("{:.3f}", error.predicted.total_us()), fmt::format("{:.2f}", error.error), algorithm}) {
    fields.push_back(field);
  }
  return csv_line(fields) + "\n";
}

void add_csv(std::string& out, const std::string& left_out, const CollectiveAccuracy& accuracy) {
  for (const ErrorGroup& group : accuracy.groups) {
    for (const ErrorBand& band : group.bands) {
      if (band.rows == 0) continue;
      out += without_row({left_out, "group", group.name, band.name, std::to_string(band.rows),
                          fmt::format("{:.2f}", band.median), fmt::format("{:.2f}", band.p90),
                          csv_number(band.target_median), csv_number(band.target_p90), ""});
    }
  }
  for (const TableError& table : accuracy.tables) {
    out += without_row({left_out, "table", table.name, "all", std::to_string(table.rows),
                        fmt::format("{:.2f}", table.median), fmt::format("{:.2f}", table.p90), "", "", table.reason});
  }
  for (const RowError& row : accuracy.rows) out += row_csv(left_out, accuracy.tables[row.table].name, row);
}

}  // namespace

std::string accuracy_table(const CollectiveAccuracy& accuracy, const CollectiveAccuracy* strict) {
  std::string out = "Each table predicted by a fit to all others; ok and MISS: within the group's target or not.\n" +
                    groups_text(accuracy) + "\nMISS: a median over 10 %; bias: the median with its sign.\n";
  out += tables_text(accuracy);
  if (strict != nullptr) {
    out += "\nStricter: all tables of the same GPU generation, collective, ranks and nodes left out at once.\n" +
           groups_text(*strict);
  }
  return out;
}

std::string accuracy_json(const CollectiveAccuracy& accuracy, const CollectiveAccuracy* strict) {
  Json out = {{"schema", "accuracy/1"}, {"table", "collectives"}, {"leave_one_table_out", part_json(accuracy)}};
  if (strict != nullptr) out["leave_twins_out"] = part_json(*strict);
  return out.dump(2) + "\n";
}

std::string accuracy_csv(const CollectiveAccuracy& accuracy, const CollectiveAccuracy* strict) {
  std::string out = std::string(kGroupColumns) + kRowColumns;
  add_csv(out, "table", accuracy);
  if (strict != nullptr) add_csv(out, "twins", *strict);
  return out;
}

}  // namespace longhaul
