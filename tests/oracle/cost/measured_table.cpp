#include "tests/oracle/cost/measured_table.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "sim/core/csv.h"
#include "sim/core/data_files.h"

namespace longhaul {

std::vector<TableRow> read_table(const std::string& file) {
  std::ifstream in(data_directory() + "/validate/data/" + file);
  EXPECT_TRUE(in) << file;
  Errors errors;
  const CsvTable table = read_csv({std::istreambuf_iterator<char>(in), {}}, file, errors);
  EXPECT_TRUE(errors.empty()) << errors.front().to_string();
  std::vector<TableRow> rows;
  for (const CsvRow& row : table.rows) {
    TableRow& named = rows.emplace_back();
    for (std::size_t i = 0; i < table.columns.size(); ++i) named[table.columns[i]] = row.fields[i];
  }
  return rows;
}

}  // namespace longhaul
