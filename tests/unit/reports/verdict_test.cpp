#include "reports/verdict.h"

#include <gtest/gtest.h>

#include "tests/unit/reports/fixtures.h"

namespace longhaul {
namespace {

using testing::results_of;
using testing::row;

CaseVerdict verdict_of(std::vector<Json> rows, const std::string& baseline) {
  return case_verdict(read_result_rows(results_of(std::move(rows), baseline)).at(0));
}

Json too_large(Json json) {
  json["does_not_fit"] = {{"needed_bytes", 160e9}, {"limit_bytes", 100e9}};
  return json;
}

TEST(Verdict, SeparateIntervalsWin) {
  const CaseVerdict verdict = verdict_of({row("a", 1000, 900, 1100), row("b", 800, 750, 850)}, "a");
  EXPECT_EQ(verdict.kind, VerdictKind::kWins);
  EXPECT_EQ(verdict.leader, 1);
  EXPECT_TRUE(verdict.overlaps.empty());
  // Speed-up 1000 / 800; ends 900 / 850 and 1100 / 750.
  EXPECT_EQ(verdict.sentence(),
            "b wins: b takes 800.0\u00a0ms a step (750.0 to 850.0). It is 1.25\u00d7 as fast as the baseline a "
            "(1.06\u00d7 to 1.47\u00d7). No other comes within the error of the comparison.");
}

TEST(Verdict, OverlapIsTooCloseToCall) {
  const CaseVerdict verdict =
      verdict_of({row("a", 900, 820, 1000), row("b", 800, 750, 850), row("c", 2000, 1900, 2100)}, "a");
  EXPECT_EQ(verdict.kind, VerdictKind::kTooClose);
  EXPECT_EQ(verdict.leader, 1);
  EXPECT_EQ(verdict.overlaps, std::vector<int>{0});
  EXPECT_EQ(verdict.headline, "Too close to call");
  EXPECT_NE(verdict.detail.find("b has the shortest step"), std::string::npos) << verdict.detail;
  EXPECT_NE(verdict.detail.find("but a is within the error of the comparison"), std::string::npos) << verdict.detail;
}

TEST(Verdict, TouchingEndsOverlap) {
  EXPECT_EQ(verdict_of({row("a", 900, 850, 1000), row("b", 800, 750, 850)}, "a").kind, VerdictKind::kTooClose);
  EXPECT_EQ(verdict_of({row("a", 900, 850.001, 1000), row("b", 800, 750, 850)}, "a").kind, VerdictKind::kWins);
}

TEST(Verdict, EqualTimesTieAndTheFirstLeads) {
  const CaseVerdict verdict = verdict_of({row("a", 800, 800, 800), row("b", 800, 800, 800)}, "a");
  EXPECT_EQ(verdict.kind, VerdictKind::kTooClose);
  EXPECT_EQ(verdict.leader, 0);
  EXPECT_NE(verdict.detail.find("a ties with b"), std::string::npos) << verdict.detail;
  EXPECT_NE(verdict.detail.find("It is the baseline of this case."), std::string::npos) << verdict.detail;
}

TEST(Verdict, LayoutsOfOneStrategyDoNotContest) {
  Json best = row("b-best", 790, 740, 840);
  best["strategy"] = "b";
  const CaseVerdict verdict = verdict_of({row("a", 1000, 900, 1100), row("b", 800, 750, 850), best}, "a");
  EXPECT_EQ(verdict.kind, VerdictKind::kWins);
  EXPECT_EQ(verdict.headline, "b wins");
  EXPECT_NE(verdict.detail.find("Its other layouts (b) are too close to tell apart."), std::string::npos);
}

// b's step is shorter, but trains half the tokens: a token of it takes 1.6 times as long.
TEST(Verdict, RowsRankByTheTimeOfAToken) {
  Json a = row("a", 1000, 900, 1100), b = row("b", 800, 750, 850), c = row("c", 1010, 900, 1100);
  a["over_winner"] = {{"ratio", 1.0}, {"low", 1.0}, {"high", 1.0}};
  b["over_winner"] = {{"ratio", 1.6}, {"low", 1.5}, {"high", 1.7}};
  c["over_winner"] = {{"ratio", 1.01}, {"low", 0.9}, {"high", 1.1}};
  const CaseVerdict wins = verdict_of({b, a}, "b");
  EXPECT_EQ(wins.kind, VerdictKind::kWins);
  EXPECT_EQ(wins.leader, 1);
  EXPECT_NE(wins.detail.find("It is 1.60\u00d7 as fast as the baseline b"), std::string::npos) << wins.detail;
  const CaseVerdict close = verdict_of({b, a, c}, "b");
  EXPECT_NE(close.detail.find("a trains a token fastest, "), std::string::npos) << close.detail;
  const CaseVerdict large = verdict_of({too_large(b), a}, "a");
  EXPECT_EQ(large.detail.find("would be faster"), std::string::npos) << large.detail;
}

TEST(Verdict, ARowThatDoesNotFitNeverWins) {
  const CaseVerdict verdict = verdict_of({row("a", 1000, 900, 1100), too_large(row("b", 500, 450, 550))}, "a");
  EXPECT_EQ(verdict.kind, VerdictKind::kOnlyOne);
  EXPECT_EQ(verdict.leader, 0);
  EXPECT_NE(verdict.detail.find("b would be faster (500.0\u00a0ms) but does not fit in memory: it needs 160\u00a0GB of "
                                "100\u00a0GB."),
            std::string::npos)
      << verdict.detail;
}

TEST(Verdict, OneRowIsAloneNotAWinner) {
  const CaseVerdict verdict = verdict_of({row("a", 1000, 900, 1100)}, "a");
  EXPECT_EQ(verdict.kind, VerdictKind::kOnlyOne);
  EXPECT_EQ(verdict.sentence(),
            "a alone: a takes 1\u202f000\u00a0ms a step (900 to 1\u202f100); the case holds no other row. It is the "
            "baseline of this case.");
}

TEST(Verdict, NobodyFits) {
  Json worse = row("b", 500, 450, 550);
  worse["does_not_fit"] = {{"needed_bytes", 200e9}, {"limit_bytes", 100e9}};
  const CaseVerdict verdict = verdict_of({worse, too_large(row("a", 1000, 900, 1100))}, "a");
  EXPECT_EQ(verdict.kind, VerdictKind::kNobodyFits);
  EXPECT_EQ(verdict.leader, -1);
  EXPECT_EQ(
      verdict.sentence(),
      "Nothing fits: no strategy fits in the memory of a GPU. a comes nearest: it needs 160\u00a0GB of 100\u00a0GB.");
}

TEST(Verdict, NobodyApplies) {
  const Json absent = {{"name", "csbp"}, {"case", ""}, {"not_applicable", "causal"}};
  EXPECT_EQ(verdict_of({absent}, "a").kind, VerdictKind::kNobodyApplies);
  EXPECT_EQ(case_verdict(ResultCase{}).kind, VerdictKind::kNoRows);
}

TEST(Verdict, HiddenRowsAreBaselinesButNeverWin) {
  Json hidden = row("a", 80, 80, 80);
  hidden["hidden"] = true;
  const CaseVerdict verdict = verdict_of({hidden, row("b", 800, 800, 800)}, "a");
  EXPECT_EQ(verdict.leader, 0);  // of the shown rows: b
  EXPECT_NE(verdict.detail.find("0.10\u00d7 as fast as the baseline a"), std::string::npos) << verdict.detail;
}

}  // namespace
}  // namespace longhaul
