#include "validate/fit/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/algorithm/string.hpp>
#include <boost/lexical_cast.hpp>
#include <fstream>
#include <stdexcept>

#include "sim/core/invariant.h"

namespace longhaul {

Expected<Table> Table::read(const std::string& file, const std::vector<std::string>& columns) {
  std::ifstream in(file);
  if (!in) return tl::unexpected(Errors{{file, "", "cannot be read", "a table of measured times", ""}});
  Errors errors;
  Table table;
  table.file_ = file;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    boost::trim(line);
    if (line.empty() || line.front() == '#') continue;
    std::vector<std::string> fields;
    boost::split(fields, line, boost::is_any_of(","));
    if (table.columns_.empty()) {
      table.columns_ = fields;
      for (const std::string& column : columns) {
        if (std::find(fields.begin(), fields.end(), column) == fields.end()) {
          errors.push_back({file, fmt::format("line {}", number), fmt::format("has no column \"{}\"", column), "",
                            nearest_name(column, fields)});
        }
      }
      continue;
    }
    if (fields.size() != table.columns_.size()) {
      errors.push_back({file, fmt::format("line {}", number), fmt::format("has {} fields", fields.size()),
                        fmt::format("{}", table.columns_.size()), ""});
      continue;
    }
    table.rows_.push_back(std::move(fields));
    table.lines_.push_back(number);
  }
  if (table.rows_.empty()) errors.push_back({file, "", "holds no rows", "measured times", ""});
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return table;
}

std::size_t Table::column_index(const std::string& column) const {
  const auto found = std::find(columns_.begin(), columns_.end(), column);
  LH_ASSERT(found != columns_.end(), "column {} was not asked for when {} was read", column, file_);
  return static_cast<std::size_t>(found - columns_.begin());
}

const std::string& Table::text(std::size_t row, const std::string& column) const {
  return rows_.at(row)[column_index(column)];
}

double Table::number(std::size_t row, const std::string& column) const {
  double value = 0;
  if (!boost::conversion::try_lexical_convert(text(row, column), value)) {
    throw std::invalid_argument(
        fmt::format("{}: line {}: {} is \"{}\"; expected a number", file_, lines_[row], column, text(row, column)));
  }
  return value;
}

std::int64_t Table::integer(std::size_t row, const std::string& column) const {
  std::int64_t value = 0;
  if (!boost::conversion::try_lexical_convert(text(row, column), value)) {
    throw std::invalid_argument(
        fmt::format("{}: line {}: {} is \"{}\"; expected an integer", file_, lines_[row], column, text(row, column)));
  }
  return value;
}

}  // namespace longhaul
