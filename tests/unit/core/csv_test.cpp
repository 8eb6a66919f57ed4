#include "sim/core/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/error_texts.h"

namespace longhaul {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Csv, CommentsBlankLinesAndLineEndsArePassedOver) {
  Errors errors;
  const CsvTable table =
      read_csv("\xEF\xBB\xBF# source: x, y\r\n\r\na, b ,c\r\n1,,3\r\n# more\n  4 ,5,6", "t.csv", errors);
  EXPECT_THAT(errors, IsEmpty());
  EXPECT_THAT(table.columns, ElementsAre("a", "b", "c"));
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[0].line, 4);
  EXPECT_THAT(table.rows[0].fields, ElementsAre("1", "", "3"));
  EXPECT_EQ(table.rows[1].line, 6);
  EXPECT_THAT(table.rows[1].fields, ElementsAre("4", "5", "6"));
  EXPECT_EQ(table.find("c"), 2u);
  EXPECT_EQ(table.find("d"), std::nullopt);
}

TEST(Csv, QuotedFieldsHoldCommasAndQuotes) {
  Errors errors;
  const CsvTable table = read_csv("a,b\n\"x, \"\"y\"\"\" , \" z \"\n", "t.csv", errors);
  EXPECT_THAT(errors, IsEmpty());
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_THAT(table.rows[0].fields, ElementsAre("x, \"y\"", " z "));
}

TEST(Csv, EveryFaultyRowIsNamed) {
  Errors errors;
  const CsvTable table = read_csv("a,b\n1\n1,2\n\"1,2\n\"1\"x,2\n1,2,3\n", "t.csv", errors);
  EXPECT_EQ(table.rows.size(), 1u);
  EXPECT_THAT(
      texts(errors),
      ElementsAre("t.csv: line 2: has 1 fields; expected 2, as the header has",
                  "t.csv: line 4: has a quote that is not closed; expected fields as \"...\" with \"\" for a quote",
                  "t.csv: line 5: has text behind a closing quote; expected fields as \"...\" with \"\" for a quote",
                  "t.csv: line 6: has 3 fields; expected 2, as the header has"));
}

TEST(Csv, FaultsOfTheHeader) {
  Errors errors;
  read_csv("# nothing\n\n", "t.csv", errors);
  read_csv("a,b,a\n", "u.csv", errors);
  EXPECT_THAT(texts(errors), ElementsAre("t.csv: holds no header; expected a line of column names",
                                         "u.csv: line 1: has the column \"a\" twice; expected each once"));
}

// What is written is read back.
TEST(Csv, LinesAreReadBack) {
  const std::vector<std::string> fields = {"#x", "a,b", "say \"no\"", " blank ", "", "plain"};
  Errors errors;
  const CsvTable table = read_csv("a,b,c,d,e,f\n" + csv_line(fields) + "\n", "t.csv", errors);
  EXPECT_THAT(errors, IsEmpty());
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(table.rows[0].fields, fields);
  EXPECT_EQ(csv_line({"a", "b"}), "a,b");
}

}  // namespace
}  // namespace longhaul
