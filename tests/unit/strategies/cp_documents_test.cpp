// Documents one by one: rounds of groups as Megatron's scheduler makes them, and the steps that run them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "sim/core/rng.h"
#include "sim/schedule/checks.h"
#include "sim/schedule/coverage.h"
#include "sim/strategies/context_parallel/document_rounds.h"
#include "sim/strategies/registry.h"
#include "tests/unit/strategies/ring_case.h"

namespace longhaul {
namespace {

using Documents = std::vector<PlannedDocument>;
using Rounds = std::vector<DocumentRound>;

Documents documents_of(const std::vector<std::int64_t>& tokens) {
  Documents documents;
  for (const std::int64_t one : tokens) documents.push_back({static_cast<DocumentId>(documents.size()), one});
  return documents;
}

Rounds rounds_of(const std::vector<std::int64_t>& tokens, std::int64_t ranks, std::int64_t rank_tokens) {
  return *plan_document_rounds(documents_of(tokens), ranks, rank_tokens);
}

// 4 tokens a rank: 13 tokens want 4 ranks, 7 want 2, 4 and 3 want 1. No other has a place beside the 13. The rest of
// it: a group of 2 ranks and two of 1.
TEST(DocumentRounds, GroupsOfFallingSizes) {
  const Rounds rounds = rounds_of({3, 13, 4, 7}, 4, 4);
  ASSERT_EQ(rounds.size(), 2U);
  EXPECT_EQ(rounds[0], (DocumentRound{{0, 4, {{1, 13}}}}));
  EXPECT_EQ(rounds[1], (DocumentRound{{0, 2, {{3, 7}}}, {2, 1, {{2, 4}}}, {3, 1, {{0, 3}}}}));
}

// One document of 3 tokens, which one rank could take: doubled until no rank is free. The second: 2, 1 and 1 of 8
// ranks; the first of the smallest is doubled, 2, 2, 1; then the last, 2, 2, 2; then the first, 4, 2, 2.
TEST(DocumentRounds, SmallestGroupsSpreadOverFreeRanks) {
  EXPECT_EQ(rounds_of({3}, 8, 4), (Rounds{{{0, 8, {{0, 3}}}}}));
  EXPECT_EQ(rounds_of({3, 8, 2}, 8, 4), (Rounds{{{0, 4, {{1, 8}}}, {4, 2, {{0, 3}}}, {6, 2, {{2, 2}}}}}));
}

// No power of two: 4 of 5 ranks are in groups of 2, and one rank is no second group of 2. All ranks are the largest
// group.
TEST(DocumentRounds, RanksThatAreNoPowerOfTwo) {
  EXPECT_EQ(rounds_of({8, 7}, 5, 4), (Rounds{{{0, 2, {{0, 8}}}, {2, 2, {{1, 7}}}}}));
  EXPECT_EQ(rounds_of({17}, 5, 4), (Rounds{{{0, 5, {{0, 17}}}}}));
}

// Two ranks, all documents of one size. Work 100 and 81, then 25 to the second rank, 106, 25 to the first, 125: 19
// apart, more than 5 %. Without the last one 100 and 106, 6 apart: it is put off. Without the other one it would be 19
// again.
TEST(DocumentRounds, LastOfTheHeaviestIsPutOff) {
  const Rounds rounds = rounds_of({10, 9, 5, 5}, 2, 100);
  ASSERT_EQ(rounds.size(), 2U);
  EXPECT_EQ(rounds[0], (DocumentRound{{0, 1, {{0, 10}}}, {1, 1, {{1, 9}, {2, 5}}}}));
  EXPECT_EQ(rounds[1], (DocumentRound{{0, 2, {{3, 5}}}}));
}

// 10 tokens a rank: 20 tokens are 200 of work on two ranks, two of 10 on each of the others 200 too. That is balanced
// and fewer ranks than the first wanted, so the round ends before the document of 2.
TEST(DocumentRounds, EndWhereGroupsAreBalanced) {
  const Rounds rounds = rounds_of({20, 10, 10, 10, 10, 2}, 4, 10);
  ASSERT_EQ(rounds.size(), 2U);
  EXPECT_EQ(rounds[0], (DocumentRound{{0, 2, {{0, 20}}}, {2, 1, {{1, 10}, {3, 10}}}, {3, 1, {{2, 10}, {4, 10}}}}));
  EXPECT_EQ(rounds[1], (DocumentRound{{0, 4, {{5, 2}}}}));
}

TEST(DocumentRounds, RefuseWhatTheyCannotDeal) {
  EXPECT_EQ(plan_document_rounds(Documents{}, 2, 4).error(), "the sequence has no documents");
  EXPECT_EQ(plan_document_rounds(Documents{{0, 1}}, 0, 4).error(), "the group needs at least 1 rank, not 0");
}

// Every document once; groups beside each other, each at a multiple of its size; no rank free where ranks are a power
// of two; at least as many ranks as a document wants.
TEST(DocumentRounds, HoldEveryDocumentOnce) {
  Rng rng(1, "document rounds");
  for (int draw = 0; draw < 500; ++draw) {
    const std::int64_t ranks = rng.integer(1, 64), rank_tokens = rng.integer(1, 50);
    std::vector<std::int64_t> tokens;
    for (std::int64_t i = rng.integer(1, 80); i > 0; --i) tokens.push_back(rng.integer(1, rng.integer(1, 400)));
    std::multiset<DocumentId> seen;
    for (const DocumentRound& round : rounds_of(tokens, ranks, rank_tokens)) {
      std::int64_t next = 0;
      for (const DocumentGroup& group : round) {
        EXPECT_EQ(group.first, next);
        EXPECT_EQ(group.first % group.ranks, 0);
        next += group.ranks;
        EXPECT_FALSE(group.documents.empty());
        for (const PlannedDocument& document : group.documents) {
          seen.insert(document.document);
          EXPECT_TRUE(group.ranks == ranks || group.ranks * rank_tokens >= document.tokens);
        }
      }
      EXPECT_LE(next, ranks);
      if ((ranks & (ranks - 1)) == 0) {
        EXPECT_EQ(next, ranks);
      }
    }
    EXPECT_EQ(seen.size(), tokens.size());
    EXPECT_EQ(std::set<DocumentId>(seen.begin(), seen.end()).size(), tokens.size());
  }
}

Planned plan_one_by_one(const RingCase& of, std::int64_t rank_tokens, Scope scope = Scope::kAttention) {
  StrategyRequest request = ring_request(of);
  request.training.scope = scope;
  request.options = {{"documents", "one-by-one"}, {"rank_tokens", rank_tokens}};
  return find_strategy("hybrid-cp")->plan(request);
}

struct Calls {
  std::int64_t sent = 0;  // bytes of K, V and their gradients
  int barriers = 0;
  std::vector<std::int64_t> attention_rows;  // of each forward call
};

// Of one rank in layer 1.
Calls calls_of(const Schedule& schedule, int rank) {
  Calls calls;
  Cursor cursor(rank);
  OpInstance at;
  while (cursor.next(schedule, at)) {
    if (at.op->label == "barrier") ++calls.barriers;
    if (at.layer != 1 || is_empty(schedule, at)) continue;
    if (at.op->kind == OpKind::kAttention && at.op->pass == Pass::kForward) {
      calls.attention_rows.push_back(view_rows(schedule, at, at.op->q));
    }
    if (at.op->kind != OpKind::kCollective || at.op->collective != CollectiveKind::kExchange) continue;
    for (const PeerBytes& peer : exchange_bytes(schedule, at)) calls.sent += peer.send;
  }
  return calls;
}

// The rounds of GroupsOfFallingSizes. 13 tokens on 4 ranks are 8 chunks of 2 rows, so blocks of 4; 7 tokens on 2 ranks
// 4 chunks of 2. A ring of g ranks sends g - 1 blocks forward, 2 (g - 1) backward (Transformer Engine's). One barrier.
TEST(DocumentStep, ARingADocumentAndACallADocument) {
  RingCase of;
  of.cp = 4;
  of.sequences = {{3, 13, 4, 7}};
  const auto schedule = plan_one_by_one(of, 4)->schedule;
  const std::int64_t row = 4 * ring_model(of).kv_width();
  std::vector<Calls> calls;
  for (int rank = 0; rank < 4; ++rank) calls.push_back(calls_of(*schedule, rank));
  for (const Calls& one : calls) EXPECT_EQ(one.barriers, 1);
  for (const int rank : {0, 1}) EXPECT_EQ(calls[static_cast<std::size_t>(rank)].sent, (3 * 3 + 3 * 1) * 4 * row);
  for (const int rank : {2, 3}) EXPECT_EQ(calls[static_cast<std::size_t>(rank)].sent, 3 * 3 * 4 * row);
  using Rows = std::vector<std::int64_t>;
  // Rank 2 is the third of 4: its own block, two halves of keys before it, then half of its queries. Then 4 tokens
  // alone.
  EXPECT_EQ(calls[2].attention_rows, (Rows{4, 4, 4, 2, 4}));
  EXPECT_EQ(calls[3].attention_rows.back(), 3);
}

// Two replicas with another number of documents each, two micro-batches, ranks without a document in the last chunk:
// the rules of schedules hold, every pair is computed once.
TEST(DocumentStep, SchedulesHold) {
  RingCase of;
  of.cp = 3;
  of.dp = 2;
  of.zero_stage = 3;
  of.sequences = {{30, 2, 2}, {9, 9, 9, 1, 1, 1, 1}, {5, 4, 40}, {3, 3, 3}};
  for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
    of.recompute = recompute;
    for (const Scope scope : {Scope::kStep, Scope::kForwardBackward, Scope::kLayers, Scope::kAttention}) {
      const Planned planned = plan_one_by_one(of, 8, scope);
      ASSERT_TRUE(planned.has_value()) << planned.error();
      const CheckResult result = check_schedule(*planned->schedule);
      EXPECT_TRUE(result.ok()) << (result.violations.empty() ? "" : result.violations.front());
      EXPECT_TRUE(check_coverage(*planned->schedule).empty());
    }
  }
}

// One document over 1,024 ranks is a ring that a step can hold; one more over half of them is another ring.
TEST(DocumentStep, RingsThatAreTooLargeAreRefused) {
  RingCase of;
  of.layers = 1;
  of.cp = 1024;
  of.sequences = {{4096, 2048, 2048}};
  const Planned planned = plan_one_by_one(of, 4);
  ASSERT_FALSE(planned.has_value());
  EXPECT_EQ(planned.error(), "rings of 1536 ranks in all are larger than 1024");
  of.cp = 1025;
  EXPECT_EQ(plan_one_by_one(of, 1).error(), "rings of 1025 ranks in all are larger than 1024");
}

}  // namespace
}  // namespace longhaul
