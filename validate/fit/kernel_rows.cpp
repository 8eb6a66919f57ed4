#include "validate/fit/kernel_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/lexical_cast.hpp>
#include <fstream>
#include <sstream>

#include "sim/core/csv.h"
#include "sim/core/units.h"
#include "sim/cost/cost_rows.h"

namespace longhaul {
namespace {

constexpr std::int64_t kMostRows = std::int64_t{1} << 30;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;
constexpr double kMostMs = 1e7;
constexpr const char* kThrottled = "throttled";

// One line; collects its faults.
class Line {
 public:
  Line(const CsvTable& table, const CsvRow& row, const std::string& file, Errors& errors)
      : table_(table), row_(row), file_(file), errors_(errors) {}

  std::string text(const std::string& column) const {
    const auto found = table_.find(column);
    return found ? row_.fields[*found] : "";
  }
  std::int64_t integer(const std::string& column, std::int64_t low, std::int64_t high) {
    std::int64_t value = 0;
    if (boost::conversion::try_lexical_convert(text(column), value) && value >= low && value <= high) return value;
    fault(column, fmt::format("an integer from {} to {}", low, high));
    return low;
  }
  double milliseconds(const std::string& column) {
    double value = 0;
    if (boost::conversion::try_lexical_convert(text(column), value) && value > 0 && value < kMostMs) {
      return value * kMilli;
    }
    fault(column, "a positive number of milliseconds");
    return kMilli;
  }
  std::string choice(const std::string& column, const std::vector<std::string>& names) {
    const std::string field = text(column);
    if (std::find(names.begin(), names.end(), field) == names.end()) {
      fault(column, fmt::format("one of {}", fmt::join(names, ", ")), nearest_name(field, names));
    }
    return field;
  }
  void fault(const std::string& column, std::string expected, std::string nearest = "") {
    errors_.push_back({file_, fmt::format("line {}", row_.line), fmt::format("{} is \"{}\"", column, text(column)),
                       std::move(expected), std::move(nearest)});
  }
  void add(InputError error) {
    error.file = file_;
    error.path = fmt::format("line {}", row_.line);
    errors_.push_back(std::move(error));
  }
  int number() const { return row_.line; }

 private:
  const CsvTable& table_;
  const CsvRow& row_;
  const std::string& file_;
  Errors& errors_;
};

void read_attention(Line& line, KernelRow& row) {
  row.pass = line.choice("pass", {"fwd", "bwd"});
  row.q_heads = line.integer("q_heads", 1, 4096);
  row.kv_heads = line.integer("kv_heads", 1, 4096);
  row.head_dim = line.integer("head_dim", 1, 4096);
  if (row.q_heads % row.kv_heads != 0) line.fault("q_heads", "a multiple of kv_heads");
  row.mask = line.text("mask");
  row.pieces = line.text("pieces");
  if (row.impl.empty()) line.fault("impl", "the library that was timed");
  const auto pieces = parse_pieces(row.pieces, row.mask);
  if (!pieces) line.add(pieces.error());
}

KernelRow read_row(Line& line, const std::string& file) {
  KernelRow row;
  row.file = file;
  row.line = line.number();
  row.impl = line.text("impl");
  row.name = line.text("name");
  row.op = line.choice("op", {"gemm", "attention", "elementwise", "copy", "launch"});
  if (row.op == "gemm") {
    row.pass = line.choice("pass", {"fwd", "bwd-input", "bwd-weight"});
    row.m = line.integer("m", 1, kMostRows);
    row.n = line.integer("n", 1, kMostRows);
    row.k = line.integer("k", 1, kMostRows);
  } else if (row.op == "attention") {
    read_attention(line, row);
  } else if (row.op == "elementwise") {
    row.bytes = line.integer("bytes", 1, kMostBytes);
    if (!line.text("m").empty()) {
      row.m = line.integer("m", 1, kMostRows);
      row.n = line.integer("n", 1, kMostRows);
    }
  } else if (row.op == "copy") {
    row.pass = line.choice("pass", {"d2d", "h2d", "d2h"});
    row.bytes = line.integer("bytes", 1, kMostBytes);
  }
  row.alone = line.milliseconds("ms_median");
  row.least = line.milliseconds("ms_min");
  row.most = line.milliseconds("ms_max");
  const bool steady = (row.op == "gemm" || row.op == "attention") && !line.text("batch_ms").empty();
  row.seconds = steady ? line.milliseconds("batch_ms") : row.alone;
  return row;
}

}  // namespace

Expected<std::vector<KernelRow>> parse_kernel_rows(const std::string& text, const std::string& file) {
  Errors errors;
  const CsvTable table = read_csv(text, file, errors);
  for (const char* column : {"op", "ms_median", "ms_min", "ms_max"}) {
    if (!table.columns.empty() && !table.find(column)) {
      errors.push_back({file, "", fmt::format("has no column \"{}\"", column), "a table of measured kernel calls",
                        nearest_name(column, table.columns)});
    }
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  std::vector<KernelRow> rows;
  for (const CsvRow& fields : table.rows) {
    Line line(table, fields, file, errors);
    if (line.text("stop") != kThrottled) rows.push_back(read_row(line, file));
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return rows;
}

Expected<std::vector<KernelRow>> read_kernel_rows(const std::string& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return tl::unexpected(Errors{{file, "", "cannot be read", "a table of measured kernel calls", ""}});
  return parse_kernel_rows(text.str(), file);
}

std::string group_of(const KernelRow& row) { return row.name.substr(0, row.name.find_last_of("-/")); }

double spread_of(const KernelRow& row) { return (row.most - row.least) / (row.alone > 0 ? row.alone : row.seconds); }

}  // namespace longhaul
