#include "sim/workload/lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/core/data_files.h"
#include "sim/core/json.h"
#include "tests/unit/error_texts.h"

namespace longhaul {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> table_faults(std::string_view table) {
  Errors errors;
  const bool read = parse_length_table(table, "t", "t.csv", errors).has_value();
  EXPECT_EQ(read, errors.empty());
  return texts(errors);
}

std::vector<std::string> inline_faults(const Json& value) {
  Errors errors;
  const bool read = find_lengths(value, "study.json", "/documents/lengths", errors).has_value();
  EXPECT_EQ(read, errors.empty());
  return texts(errors);
}

LengthTable shipped_lengths(const std::string& name) {
  Errors errors;
  auto table = find_lengths(Json(name), "study.json", "/documents/lengths", errors);
  EXPECT_THAT(texts(errors), IsEmpty());
  return *table;
}

TEST(LengthTable, LinearBetweenRows) {
  const LengthTable table("t", {{0, 10}, {0.5, 20}, {1, 100}});
  EXPECT_EQ(table.at(0), 10);
  EXPECT_EQ(table.at(0.25), 15);
  EXPECT_EQ(table.at(0.5), 20);
  EXPECT_EQ(table.at(0.75), 60);
  EXPECT_EQ(table.at(1), 100);
  EXPECT_EQ(table.mean(), 0.5 * 15 + 0.5 * 60);
}

// More rows than the lookup has buckets inside one bucket: every row is still found.
TEST(LengthTable, ManyRowsInOneBucket) {
  std::vector<LengthRow> rows;
  for (int i = 0; i < 100; ++i) rows.push_back({i * 1e-6, 1.0 + i});
  rows.push_back({1, 1000});
  const LengthTable table("t", rows);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(table.at(i * 1e-6), 1.0 + i);
}

TEST(LengthTable, AtReturnsEveryRowOfShippedTables) {
  for (const std::string& name : list_data_names(DataKind::kLengths)) {
    const LengthTable table = shipped_lengths(name);
    for (const LengthRow& row : table.rows()) {
      // Rows of equal tokens and the left end of a step both give the row's tokens.
      EXPECT_NEAR(table.at(row.quantile), row.tokens, 1e-9 * row.tokens) << name << " " << row.quantile;
    }
  }
}

TEST(LengthTableDeathTest, RowsThatDoNotSpanAreABug) {
  EXPECT_DEATH(LengthTable("t", {{0, 1}, {0.5, 2}}), "do not span 0 to 1");
  EXPECT_DEATH(LengthTable("t", {{0, 3}, {1, 2}}), "tokens 2 follow 3");
}

// The means that the files' own headers state. The table is an interpolation of the sample: 2 %.
TEST(ShippedLengths, MeansOfTheSamples) {
  EXPECT_NEAR(shipped_lengths("wlb").mean(), 3961.79, 0.02 * 3961.79);
  EXPECT_NEAR(shipped_lengths("prolong").mean(), 3051.90, 0.02 * 3051.90);
  EXPECT_NEAR(shipped_lengths("wikipedia").mean(), 1013.65, 0.02 * 1013.65);
}

// flashcp.md 3.3: 13.46 M documents, mean 1782 with every document at its bin's mid-point. A sample rounds down, so the
// table's mean stands half a token above it; bin [0,10] is taken as 1 to 10, which adds at most half a token.
TEST(ShippedLengths, MagiAttentionHistogram) {
  const std::vector<std::pair<double, double>> bins = {
      {11, 30254},     {51, 391188},    {101, 699596},   {201, 1377757}, {501, 3794735},
      {1025, 3316785}, {2049, 2106566}, {4097, 988525},  {8193, 410002}, {16385, 173574},
      {32769, 115007}, {65537, 18428},  {131073, 22513}, {196609, 18284}};
  const LengthTable table = shipped_lengths("magiattention");
  ASSERT_EQ(table.rows().size(), bins.size() + 1);
  double below = 0;
  for (std::size_t i = 0; i < bins.size(); ++i) {
    below += bins[i].second / 13463214.0;
    EXPECT_EQ(table.rows()[i + 1].tokens, bins[i].first);
    EXPECT_NEAR(table.rows()[i + 1].quantile, below, 1e-9);
  }
  EXPECT_NEAR(table.mean() - 0.5, 1782, 1);
}

TEST(LengthTableReader, NotATable) {
  EXPECT_THAT(table_faults("hello\nworld\n"),
              ElementsAre("t.csv: line 1: is \"hello\"; expected the header \"quantile,tokens\" of a length table"));
  EXPECT_THAT(table_faults(""), ElementsAre("t.csv: has 0 rows; expected at least 2 rows of quantile and tokens"));
  EXPECT_THAT(table_faults("quantile,tokens\n0,1\n"),
              ElementsAre("t.csv: has 1 rows; expected at least 2 rows of quantile and tokens"));
}

TEST(LengthTableReader, EveryFaultyLine) {
  EXPECT_THAT(table_faults("# c\nquantile,tokens\n0,1\nx,2\n0.5\n0.6,1e999\n1,4\n"),
              ElementsAre("t.csv: line 4: is \"x,2\"; expected two numbers: quantile,tokens",
                          "t.csv: line 5: is \"0.5\"; expected two numbers: quantile,tokens",
                          "t.csv: line 6: is \"0.6,1e999\"; expected two numbers: quantile,tokens"));
}

TEST(LengthTableReader, EveryFaultyRow) {
  EXPECT_THAT(table_faults("quantile,tokens\n0.1,1\n0.5,-2\n0.4,7\n0.6,6\n1.5,9\n"),
              ElementsAre("t.csv: line 2: the first quantile is 0.1; expected 0",
                          "t.csv: line 3: tokens are -2; expected from 1 to 1073741824",
                          "t.csv: line 4: quantile 0.4 follows 0.5; expected rising quantiles",
                          "t.csv: line 5: tokens 6 follow 7; expected tokens that do not fall",
                          "t.csv: line 6: quantile is 1.5; expected a number from 0 to 1"));
  EXPECT_THAT(table_faults("quantile,tokens\n0,1\n0.9,7\n"),
              ElementsAre("t.csv: line 3: the last quantile is 0.9; expected 1"));
}

TEST(LengthTableReader, WrongFileStopsAfterTwentyFaults) {
  std::string text = "quantile,tokens\n";
  for (int i = 0; i < 1000; ++i) text += "junk\n";
  EXPECT_EQ(table_faults(text).size(), 20u);
}

TEST(LengthTableReader, CarriageReturnsAndCommentsAreRead) {
  EXPECT_THAT(table_faults("# source\r\nquantile,tokens\r\n0,1\r\n\r\n1,9\r\n"), IsEmpty());
}

TEST(LengthTableReader, InlineTables) {
  EXPECT_THAT(inline_faults({{"quantiles", {{0, 1}, {1, 4096}}}}), IsEmpty());
  EXPECT_THAT(
      inline_faults(Json::object()),
      ElementsAre("study.json: /documents/lengths/quantiles: is missing; expected a list of [quantile, tokens]"));
  EXPECT_THAT(inline_faults({{"quantiles", 3}}),
              ElementsAre("study.json: /documents/lengths/quantiles: is 3; expected a list of [quantile, tokens]"));
  EXPECT_THAT(inline_faults({{"quantiles", {{0, 1}, {1, "x"}}}, {"name", "n"}}),
              ElementsAre("study.json: /documents/lengths/quantiles/1: is a list of 2; expected [quantile, tokens]",
                          "study.json: /documents/lengths/name: unknown key; expected one of quantiles"));
  EXPECT_THAT(
      inline_faults({{"quantiles", {{0, 5}, {1, 4}}}}),
      ElementsAre("study.json: /documents/lengths/quantiles/1: tokens 4 follow 5; expected tokens that do not fall"));
}

TEST(LengthTableReader, BadReferences) {
  EXPECT_THAT(
      inline_faults("wbl"),
      ElementsAre("study.json: /documents/lengths: unknown length table \"wbl\"; expected one of magiattention, "
                  "pile-like, prolong, wikipedia, wlb, or a path; did you mean \"wlb\"?"));
  EXPECT_THAT(inline_faults(7),
              ElementsAre("study.json: /documents/lengths: is 7; expected a shipped length table's name, the path of a "
                          "CSV, or {\"quantiles\": [[0, 1], ...]}"));
  EXPECT_THAT(
      inline_faults("no/such.csv"),
      ElementsAre("no/such.csv: cannot be read; expected a length table (named at study.json: /documents/lengths)"));
  const std::string model = *find_data_file(DataKind::kModel, "llama3-8b");
  EXPECT_THAT(inline_faults(model), ElementsAre(model + ": line 1: is \"{\"; expected the header \"quantile,tokens\" "
                                                        "of a length table (named at study.json: /documents/lengths)"));
}

}  // namespace
}  // namespace longhaul
