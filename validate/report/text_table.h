// A table as aligned text or as Markdown. Cells are plain text; widths count characters of UTF-8.
#pragma once

#include <string>
#include <vector>

namespace longhaul {

struct TextTable {
  std::vector<std::string> columns;
  std::vector<bool> to_the_right;  // numbers; by column
  std::vector<std::vector<std::string>> rows;
};

// Two spaces before each line, two between columns, no blanks at the end of a line.
std::string aligned_text(const TextTable& table);
// `|` in a cell is escaped.
std::string markdown_text(const TextTable& table);

}  // namespace longhaul
