// Comma-separated tables as input: RFC 4180 fields on lines of their own.
//
// Lines end in LF or CRLF; empty lines and lines that begin with '#' are passed over; a byte order mark is too. The
// first line left is the header. A field may stand in double quotes, inside which "" is one quote; it may not go over
// several lines. Blanks around a field that is not quoted are dropped.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.h"

namespace longhaul {

struct CsvRow {
  int line = 0;                     // from 1
  std::vector<std::string> fields;  // as many as there are columns
};

struct CsvTable {
  std::vector<std::string> columns;
  std::vector<CsvRow> rows;

  // Position of the column.
  std::optional<std::size_t> find(std::string_view column) const;
};

// The rows that hold together; appends an error for every one that does not: another number of fields than columns, a
// quote that is not closed, text behind one. No header, or a column twice, is an error of the file.
CsvTable read_csv(const std::string& text, const std::string& file, Errors& errors);

// "%g" of the number, an empty field for none.
std::string csv_number(const std::optional<double>& value);

// The fields as one line without its end, quoted where they need to be.
std::string csv_line(const std::vector<std::string>& fields);

}  // namespace longhaul
