// A measured table: comma-separated, a header line, '#' lines are comments; no quoting.
#pragma once

#include <string>
#include <vector>

#include "sim/core/error.h"

namespace longhaul {

class Table {
 public:
  // Errors: unreadable file, missing column (with the nearest one), a row of the wrong length, all at once.
  static Expected<Table> read(const std::string& file, const std::vector<std::string>& columns);

  std::size_t size() const { return rows_.size(); }
  // Where a row stands in its file, from 1.
  int line(std::size_t row) const { return lines_.at(row); }
  const std::string& text(std::size_t row, const std::string& column) const;
  // The field as a number; a field that is not one is an error of the file and throws std::invalid_argument with
  // file, line and column.
  double number(std::size_t row, const std::string& column) const;
  std::int64_t integer(std::size_t row, const std::string& column) const;

 private:
  std::size_t column_index(const std::string& column) const;

  std::string file_;
  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<int> lines_;
};

}  // namespace longhaul
