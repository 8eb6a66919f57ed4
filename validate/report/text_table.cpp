#include "validate/report/text_table.h"

#include <algorithm>

#include "sim/core/invariant.h"
#include "sim/core/printable.h"

namespace longhaul {
namespace {

std::string aligned_line(const TextTable& table, const std::vector<std::string>& cells,
                         const std::vector<std::size_t>& widths) {
  LH_ASSERT(cells.size() == widths.size(), "a row of {} cells in a table of {} columns", cells.size(), widths.size());
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string blanks(widths[i] - count_characters(cells[i]), ' ');
    line += "  " + (table.to_the_right[i] ? blanks + cells[i] : cells[i] + blanks);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string escaped(const std::string& cell) {
  std::string text;
  for (const char c : cell) text += c == '|' ? std::string("\\|") : std::string(1, c);
  return text;
}

}  // namespace

std::string aligned_text(const TextTable& table) {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    std::size_t width = count_characters(table.columns[i]);
    for (const std::vector<std::string>& row : table.rows) width = std::max(width, count_characters(row.at(i)));
    widths.push_back(width);
  }
  std::string text = aligned_line(table, table.columns, widths);
  for (const std::vector<std::string>& row : table.rows) text += aligned_line(table, row, widths);
  return text;
}

std::string markdown_text(const TextTable& table) {
  const auto line = [](const std::vector<std::string>& cells) {
    std::string text = "|";
    for (const std::string& cell : cells) text += " " + escaped(cell) + " |";
    return text + "\n";
  };
  std::string text = line(table.columns) + "|";
  for (const bool right : table.to_the_right) text += right ? " ---: |" : " --- |";
  text += "\n";
  for (const std::vector<std::string>& row : table.rows) text += line(row);
  return text;
}

}  // namespace longhaul
