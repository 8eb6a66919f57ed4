// Plans given in a study: flashcp's `assignment`.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "sim/strategies/registry.h"
#include "tests/unit/strategies/option_errors.h"
#include "tests/unit/strategies/ring_case.h"

namespace longhaul {
namespace {

RingCase two_ranks() {
  RingCase of;
  of.cp = 2;
  of.sequences = {{6, 2}};
  return of;
}

Planned plan(const RingCase& of, const Json& options) {
  StrategyRequest request = ring_request(of);
  request.options = options;
  return find_strategy("flashcp")->plan(request);
}

Json shard(int document, int first, int tokens) {
  return {{"document", document}, {"first_token", first}, {"tokens", tokens}};
}

// 6 + 2 tokens on two ranks: 4 rows each.
Json assignment(const Json& first, const Json& second) {
  return {{"assignment", Json::array({{{"ranks", Json::array({first, second})}}})}};
}

std::string errors_of(const Json& options) { return option_errors("flashcp", options); }

TEST(CpAssignment, IsThePlan) {
  const Planned planned =
      plan(two_ranks(), assignment(Json::array({shard(0, 0, 4)}), Json::array({shard(1, 0, 2), shard(0, 4, 2)})));
  ASSERT_TRUE(planned) << planned.error();
  const Json ranks = planned->plan()[0]["plan"]["per_rank"];
  EXPECT_EQ(ranks[0]["shards"], Json::array({shard(0, 0, 4)}));
  EXPECT_EQ(ranks[1]["shards"], Json::array({shard(1, 0, 2), shard(0, 4, 2)}));
}

// A run that was measured keeps its plan: the pinned options give it again, whatever the options were.
TEST(CpAssignment, PinnedOptionsGiveThePlanAgain) {
  RingCase of;
  of.cp = 4;
  of.sequences = {{37, 1, 8, 60, 12, 5}, {90, 33}};
  for (const Json& options : {Json::object(), Json{{"cut_rule", "naive"}, {"choose", "imbalance"}},
                              Json{{"exchange", "exact"}, {"overlap", true}}, Json{{"copies", "framework"}}}) {
    const Planned first = plan(of, options);
    ASSERT_TRUE(first) << first.error();
    const Json pinned = first->pinned();
    EXPECT_EQ(errors_of(pinned), "");
    EXPECT_FALSE(pinned.contains("cut_rule"));
    const Planned again = plan(of, pinned);
    ASSERT_TRUE(again) << again.error();
    EXPECT_EQ(again->plan(), first->plan()) << options.dump();
    EXPECT_EQ(again->pinned(), pinned);
  }
}

TEST(CpAssignment, SaysWhatDoesNotFit) {
  const Json whole = Json::array({shard(0, 0, 4)});
  const auto why = [&](const Json& second) { return plan(two_ranks(), assignment(whole, second)).error(); };
  EXPECT_EQ(why(Json::array({shard(0, 4, 2), Json{{"padding", 2}}})),
            "the assignment of micro-batch 0: no rank holds token 0 of document 1");
  EXPECT_EQ(why(Json::array({shard(0, 4, 2), shard(1, 0, 1)})),
            "the assignment of micro-batch 0: rank 1 has 3 rows, rank 0 4; add {\"padding\": ROWS}");
  EXPECT_EQ(why(Json::array({shard(0, 3, 3), shard(1, 0, 1)})),
            "the assignment of micro-batch 0: token 3 of document 0 stands twice");
  EXPECT_EQ(why(Json::array({shard(1, 0, 4)})), "the assignment of micro-batch 0: no rank holds token 4 of document 0");
  EXPECT_EQ(why(Json::array({shard(0, 4, 2), shard(2, 0, 2)})),
            "the assignment of micro-batch 0: it holds document 2, which the micro-batch has not");
  EXPECT_EQ(plan(two_ranks(), Json{{"assignment", Json::array()}}).error(),
            "the assignment is of 0 micro-batches, the step has 1 (all replicas)");
  EXPECT_EQ(plan(two_ranks(), Json{{"assignment", Json::array({{{"ranks", Json::array({whole})}}})}}).error(),
            "the assignment of micro-batch 0: it has 1 ranks, the layout 2");
  const Json longer = Json::array({shard(0, 4, 3), shard(1, 0, 1)});
  EXPECT_EQ(why(longer), "the assignment of micro-batch 0: document 0 has 6 tokens, not 7");
}

TEST(CpAssignment, NamesEveryValueOfTheWrongKind) {
  EXPECT_EQ(errors_of({{"assignment", 3}}), "/strategies/0/assignment is 3; expected an array of micro-batches\n");
  const std::string text = errors_of(
      {{"assignment", Json::array({{{"ranks", Json::array({Json::array({{{"document", -1}, {"first_token", 0}}})})},
                                    {"per_doc", Json::array({"a"})}}})},
       {"cut_rule", "naive"}});
  EXPECT_NE(text.find("/strategies/0/assignment/0/per_doc/0 is \"a\"; expected the number of a document"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("/strategies/0/assignment/0/ranks/0/0/document"), std::string::npos) << text;
  EXPECT_NE(text.find("/strategies/0/assignment/0/ranks/0/0/tokens"), std::string::npos) << text;
  EXPECT_NE(text.find("/strategies/0/cut_rule says how to plan beside an \"assignment\"; expected one of the two"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace longhaul
