#include "sim/core/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/algorithm/string.hpp>
#include <sstream>

namespace longhaul {
namespace {

// Boost's escaped_list_separator drops doubled quotes and takes a backslash for an escape, so fields are cut here.
// Returns what is wrong with the line, empty if nothing is.
std::string cut_line(std::string_view line, std::vector<std::string>& fields) {
  std::size_t at = 0;
  for (;;) {
    while (at < line.size() && (line[at] == ' ' || line[at] == '\t')) ++at;
    std::string field;
    if (at < line.size() && line[at] == '"') {
      for (++at;; ++at) {
        if (at >= line.size()) return "has a quote that is not closed";
        if (line[at] != '"') {
          field += line[at];
        } else if (at + 1 < line.size() && line[at + 1] == '"') {
          field += line[at++];
        } else {
          break;
        }
      }
      ++at;
      while (at < line.size() && (line[at] == ' ' || line[at] == '\t')) ++at;
      if (at < line.size() && line[at] != ',') return "has text behind a closing quote";
    } else {
      const std::size_t end = std::min(line.find(',', at), line.size());
      field = boost::trim_copy(std::string(line.substr(at, end - at)));
      at = end;
    }
    fields.push_back(std::move(field));
    if (at >= line.size()) return "";
    ++at;  // the comma
  }
}

}  // namespace

std::optional<std::size_t> CsvTable::find(std::string_view column) const {
  const auto found = std::find(columns.begin(), columns.end(), column);
  if (found == columns.end()) return std::nullopt;
  return static_cast<std::size_t>(found - columns.begin());
}

CsvTable read_csv(const std::string& text, const std::string& file, Errors& errors) {
  CsvTable table;
  std::istringstream in(text.starts_with("\xEF\xBB\xBF") ? text.substr(3) : text);
  std::string line;
  bool header = false;
  for (int number = 1; std::getline(in, line); ++number) {
    const std::string place = fmt::format("line {}", number);
    boost::trim(line);
    if (line.empty() || line.front() == '#') continue;
    std::vector<std::string> fields;
    const std::string fault = cut_line(line, fields);
    if (!fault.empty()) {
      errors.push_back({file, place, fault, "fields as \"...\" with \"\" for a quote", ""});
      if (!header) return table;
      continue;
    }
    if (!header) {
      header = true;
      table.columns = std::move(fields);
      for (std::size_t i = 0; i < table.columns.size(); ++i) {
        const auto end = table.columns.begin() + static_cast<std::ptrdiff_t>(i);
        if (std::find(table.columns.begin(), end, table.columns[i]) == end) continue;
        errors.push_back({file, place, fmt::format("has the column \"{}\" twice", table.columns[i]), "each once", ""});
      }
      continue;
    }
    if (fields.size() != table.columns.size()) {
      errors.push_back({file, place, fmt::format("has {} fields", fields.size()),
                        fmt::format("{}, as the header has", table.columns.size()), ""});
      continue;
    }
    table.rows.push_back({number, std::move(fields)});
  }
  if (!header) errors.push_back({file, "", "holds no header", "a line of column names", ""});
  return table;
}

std::string csv_number(const std::optional<double>& value) { return value ? fmt::format("{:g}", *value) : ""; }

std::string csv_line(const std::vector<std::string>& fields) {
  std::string line;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) line += ',';
    const bool blanks = fields[i] != boost::trim_copy(fields[i]);
    const bool comment = i == 0 && fields[i].starts_with('#');
    if (!blanks && !comment && fields[i].find_first_of(",\"\n\r") == std::string::npos) {
      line += fields[i];
    } else {
      line += '"' + boost::replace_all_copy(fields[i], "\"", "\"\"") + '"';
    }
  }
  return line;
}

}  // namespace longhaul
