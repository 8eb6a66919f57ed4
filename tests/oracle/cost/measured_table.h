// Tables under validate/data.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace longhaul {

using TableRow = std::map<std::string, std::string>;  // by column

// Rows of a table in `validate/data`. A missing file and a row of another number of fields fail the test.
std::vector<TableRow> read_table(const std::string& file);

}  // namespace longhaul
