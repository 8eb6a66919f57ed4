// What a validation says, in all its forms, against files that a person can read (tests/unit/report/golden).
//
// After a change on purpose: LONGHAUL_UPDATE_GOLDEN=1 rewrites them; the diff is what to review.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/property_tree/xml_parser.hpp>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>

#include "sim/core/json.h"
#include "sim/study/results_json.h"
#include "tests/unit/json_schema/schema_errors.h"
#include "validate/report/text_table.h"
#include "validate/report/units.h"
#include "validate/report/validation_report.h"

namespace longhaul {
namespace {

std::string read(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void expect_golden(const std::string& name, const std::string& found) {
  const std::string file = std::string(LONGHAUL_GOLDEN) + "/" + name;
  const char* update = std::getenv("LONGHAUL_UPDATE_GOLDEN");
  if (update != nullptr && std::string(update) == "1") {
    std::ofstream(file, std::ios::binary) << found;
    return;
  }
  EXPECT_EQ(found, read(file)) << name << "; if that is meant: LONGHAUL_UPDATE_GOLDEN=1";
}

ComparedRow made_row(const std::string& name, double predicted, double measured, double share, Source source) {
  ComparedRow row;
  row.name = name;
  row.source = source;
  row.calls = 16;
  row.predicted = predicted;
  row.predicted_low = 0.94 * predicted;
  row.predicted_high = 1.06 * predicted;
  row.measured = measured;
  row.measured_low = 0.998 * measured;
  row.measured_high = 1.003 * measured;
  row.bounded = true;
  row.share = share;
  return row;
}

// Numbers that nobody measured: "a device of this test".
ValidationReport made_report() {
  ValidationReport report;
  Comparison& of = report.comparison;
  of.strategy = "flashcp";
  of.identity.study = "made-up";
  of.identity.study_case = "made-up";
  of.identity.strategy = "flashcp";
  of.identity.date = "2026-01-02";
  of.identity.version = "0.1.0";
  of.identity.reductions = {"layers 32 -> 2: 2 a stage show every kernel"};
  of.hardware.device = "a device of this test";
  of.hardware.driver = "1.2";
  of.hardware.cuda = "3.4";
  of.placement = RankPlacement::kVirtual;
  of.ranks = 2;
  of.repeats = 20;
  of.confidence = kMeasuredConfidence;
  of.remarks = {"2 virtual ranks on one device: communication was not measured."};
  NumericsResult numerics;
  numerics.quantity = "O";
  numerics.reference = "fp64";
  numerics.error = 1.5e-3;
  numerics.undistributed_error = 1.2e-3;
  numerics.limit = 2e-2;
  numerics.elements = 4096;
  numerics.pass = true;
  of.numerics = {numerics};
  of.step = made_row("step", 0.120, 0.118, 0, Source::kComposed);
  of.exposed_communication = made_row("exposed communication", 0.004, 0.0045, 0, Source::kComposed);
  of.kinds = {made_row("gemm forward", 0.060, 0.061, 0.6, Source::kMeasured),
              made_row("attention forward", 0.030, 0.036, 0.4, Source::kMeasured)};
  of.collectives = {made_row("gather kv forward", 0.004, 0, 0, Source::kModel)};
  of.rank_compute = {made_row("rank 0", 0.045, 0.048, 0.5, Source::kMeasured),
                     made_row("rank 1", 0.045, 0.049, 0.5, Source::kMeasured)};
  of.streams = {made_row("compute", 0.090, 0.097, 1, Source::kMeasured)};
  of.peak_memory = {made_row("rank 0", 21e9, 21.4e9, 0, Source::kMeasured)};
  of.peak_memory.front().predicted_low = of.peak_memory.front().predicted_high = 21e9;
  for (const ComparedRow& row : of.kinds) {
    of.sites.push_back({row.name,
                        "attention",
                        "forward",
                        "3 pieces, 1e+08 pairs, 32/8 heads of 128",
                        "attention of 2^26 pairs",
                        "interpolated",
                        "a kernel | of this test",
                        {0, 1},
                        row});
  }
  of.worst.sites = of.sites;
  of.worst.traits = {{"kind", "attention", 6, 10, 7, 31, 0.004}};
  report.layout = "cp 2";
  report.calibration = "calibration of this test";
  report.max_error = 0.1;
  report.baseline = "last.json";
  report.baseline_date = "2026-01-01";
  gate_numerics(of, report.gates);
  gate_prediction(of, *report.max_error, report.gates);
  report.gates.checks.push_back({"slow-down", "qkv <forward> & \"more\"", Verdict::kFail, 0.081, 0.078, 0.084, 0.04,
                                 "qkv: +8.1 % (+7.8 % to +8.4 %) against the other kernels, allowed +4 %"});
  report.gates.checks.push_back({"slow-down", "norm (forward)", Verdict::kUndecided, 0.05, -0.02, 0.12, 0.04,
                                 "norm (forward): +5.0 %; noise could explain it, measure more repeats"});
  report.gates.remarks = {"driver: 1.2 now, 1.1 in the baseline"};
  return report;
}

TEST(ValidationTexts, OfTheTerminal) { expect_golden("validation.txt", validation_text(made_report())); }
TEST(ValidationTexts, Markdown) { expect_golden("validation.md", validation_markdown(made_report())); }
TEST(ValidationTexts, Junit) { expect_golden("junit.xml", validation_junit(made_report())); }
TEST(ValidationTexts, Csv) { expect_golden("validation.csv", validation_csv(made_report())); }
TEST(ValidationTexts, JsonForm) { expect_golden("validation.json", results_text(validation_json(made_report()))); }

TEST(ValidationJson, ObeysItsSchema) {
  const nlohmann::json schema = nlohmann::json::parse(read(LONGHAUL_VALIDATION_SCHEMA));
  nlohmann::json value = nlohmann::json::parse(validation_json(made_report()).dump());
  EXPECT_EQ(schema_errors(schema, value), "");
  value["step"]["predicted"] = 1;  // a key that the schema does not have
  EXPECT_FALSE(obeys(schema, value));
  value["step"].erase("predicted");
  value["gates"]["checks"][0]["verdict"] = "FAIL";
  EXPECT_FALSE(obeys(schema, value));
}

// What Jenkins, GitLab and GitHub's actions read: counts that fit the cases, and failures with a message.
TEST(ValidationJunit, ReadsBackWithFittingCounts) {
  std::istringstream in(validation_junit(made_report()));
  boost::property_tree::ptree tree;
  boost::property_tree::read_xml(in, tree);
  const auto& all = tree.get_child("testsuites");
  int cases = 0, failures = 0, skipped = 0;
  for (const auto& [tag, suite] : all) {
    if (tag != "testsuite") continue;
    int in_suite = 0;
    for (const auto& [child, one] : suite) {
      if (child != "testcase") continue;
      ++in_suite;
      failures += static_cast<int>(one.count("failure"));
      skipped += static_cast<int>(one.count("skipped"));
      if (one.count("failure") > 0) {
        EXPECT_FALSE(one.get<std::string>("failure.<xmlattr>.message").empty());
      }
    }
    EXPECT_EQ(in_suite, suite.get<int>("<xmlattr>.tests"));
    cases += in_suite;
  }
  EXPECT_EQ(cases, all.get<int>("<xmlattr>.tests"));
  EXPECT_EQ(failures, all.get<int>("<xmlattr>.failures"));
  EXPECT_EQ(skipped, all.get<int>("<xmlattr>.skipped"));
  EXPECT_EQ(skipped, 1);
  EXPECT_NE(validation_junit(made_report()).find("qkv &lt;forward&gt; &amp; &quot;more&quot;"), std::string::npos);
}

TEST(ValidationJunit, ControlCharactersDoNotBreakIt) {
  ValidationReport report = made_report();
  report.gates.checks.front().name = std::string("a\x01") + "b\nc";
  std::istringstream in(validation_junit(report));
  boost::property_tree::ptree tree;
  EXPECT_NO_THROW(boost::property_tree::read_xml(in, tree));
  EXPECT_EQ(validation_junit(report).find('\x01'), std::string::npos);
}

TEST(ValidationJson, InfiniteErrorsAreNull) {
  ValidationReport report = made_report();
  report.comparison.numerics.front().error = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(validation_json(report)["numerics"][0]["error"].is_null());
}

TEST(ValidationReport, PassesWithoutFailuresAndWithRightNumbers) {
  ValidationReport report = made_report();
  EXPECT_FALSE(passes(report));
  report.gates.checks.clear();
  EXPECT_TRUE(passes(report));
  EXPECT_THAT(validation_text(report), testing::HasSubstr("no gates were checked"));
  report.comparison.numerics.front().pass = false;
  EXPECT_FALSE(passes(report));
}

TEST(Units, FourDigits) {
  EXPECT_EQ(seconds_text(1.2341e-3), "1.234 ms");
  EXPECT_EQ(seconds_text(37.24e-6), "37.24 us");
  EXPECT_EQ(seconds_text(812e-9), "812 ns");
  EXPECT_EQ(seconds_text(0.9999), "999.9 ms");
  EXPECT_EQ(seconds_text(0.99999), "1000 ms");
  EXPECT_EQ(seconds_text(12.5), "12.50 s");
  EXPECT_EQ(bytes_text(139.8e9), "139.8 GB");
  EXPECT_EQ(bytes_text(12), "12 B");
  EXPECT_EQ(percent_text(-0.0512), "-5.1 %");
}

TEST(TextTable, AlignsAndEscapes) {
  const TextTable table{{"name", "n"}, {false, true}, {{"a|b", "1"}, {"längst", "12"}}};
  EXPECT_EQ(aligned_text(table), "  name     n\n  a|b      1\n  längst  12\n");
  EXPECT_EQ(markdown_text(table), "| name | n |\n| --- | ---: |\n| a\\|b | 1 |\n| längst | 12 |\n");
}

}  // namespace
}  // namespace longhaul
