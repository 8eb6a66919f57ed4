// zigzag-cp's ring: bytes of every hop, pieces of every step, blocks held at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "sim/strategies/context_parallel/ring_shapes.h"
#include "tests/unit/strategies/ring_case.h"

namespace longhaul {
namespace {

constexpr DocumentId kFirst = 0;

RingCase some_case(int cp) {
  RingCase of;
  of.cp = cp;
  of.sequences = {{37, 1, 8}, {23, 2}};  // two micro-batches
  return of;
}

std::shared_ptr<const Schedule> schedule_of(const RingCase& of) { return plan_zigzag_step(of)->schedule; }

bool is_context_exchange(const Schedule& schedule, const Op& op) {
  return op.kind == OpKind::kCollective && schedule.roles[static_cast<std::size_t>(op.role)] == "context";
}

// Bytes that `rank` sends in one layer of one chunk, by pass; every hop is one block to the right, one from the left.
std::map<Pass, std::int64_t> bytes_sent(const Schedule& schedule, const RingCase& of, int rank, int chunk, int layer,
                                        std::int64_t block_bytes) {
  std::map<Pass, std::int64_t> sent;
  Cursor cursor(rank);
  OpInstance at;
  while (cursor.next(schedule, at)) {
    if (!is_context_exchange(schedule, *at.op) || at.chunk != chunk || at.layer != layer) continue;
    EXPECT_EQ(at.op->collective, CollectiveKind::kExchange);
    std::int64_t from_left = 0;
    for (const PeerBytes& peer : exchange_bytes(schedule, at)) {
      EXPECT_EQ(peer.send, peer.peer == (rank + 1) % of.cp ? block_bytes : 0);
      EXPECT_EQ(peer.receive, peer.peer == (rank + of.cp - 1) % of.cp ? block_bytes : 0);
      from_left += peer.receive;
      sent[at.op->pass] += peer.send;
    }
    EXPECT_EQ(from_left, block_bytes);
  }
  return sent;
}

// Documents of 37, 1 and 8 tokens are padded to multiples of 2N each: with N = 3 to 42, 6 and 12, 20 rows a rank.
// M = rows x 2 kv_width x 2 bytes; forward and recompute N - 1 hops, backward N - 1 of K, V and N of dK, dV.
TEST(RingSchedule, BytesOfEveryHop) {
  for (const int cp : {2, 3, 5, 8}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      RingCase of = some_case(cp);
      of.recompute = recompute;
      const auto schedule = schedule_of(of);
      for (int chunk = 0; chunk < 2; ++chunk) {
        std::int64_t rows = 0;
        for (const std::int64_t tokens : of.sequences[static_cast<std::size_t>(chunk)]) {
          rows += (tokens + 2 * cp - 1) / (2 * cp) * 2;
        }
        if (cp == 3 && chunk == 0) {
          EXPECT_EQ(rows, 20);
        }
        const std::int64_t block = rows * 2 * (of.kv_heads * 4) * 2;
        for (int rank = 0; rank < cp; ++rank) {
          const auto sent = bytes_sent(*schedule, of, rank, chunk, 1, block);
          EXPECT_EQ(sent.at(Pass::kForward), (cp - 1) * block);
          EXPECT_EQ(sent.at(Pass::kBackward), (2 * cp - 1) * block);
          EXPECT_EQ(sent.count(Pass::kRecompute), recompute == Recompute::kFull ? 1u : 0u);
          if (recompute == Recompute::kFull) {
            EXPECT_EQ(sent.at(Pass::kRecompute), (cp - 1) * block);
          }
        }
      }
    }
  }
}

TEST(RingSchedule, OneRankSendsNothing) {
  const auto schedule = schedule_of(some_case(1));
  Cursor cursor(0);
  OpInstance at;
  int attention = 0;
  while (cursor.next(*schedule, at)) {
    EXPECT_FALSE(is_context_exchange(*schedule, *at.op)) << at.op->label;
    EXPECT_NE(at.op->kind, OpKind::kMergePartials);
    attention += at.op->kind == OpKind::kAttention ? 1 : 0;
  }
  EXPECT_EQ(attention, 2 * 2 * 2);  // forward and backward, layers, chunks
}

// In launch order: what has been acquired and not released. Blocks of K and V: the one in use and the one on its way.
TEST(RingSchedule, TwoBlocksAreHeld) {
  const auto schedule = schedule_of(some_case(8));
  std::set<std::uint64_t> held;
  std::size_t most = 0;
  Cursor cursor(3);
  OpInstance at;
  const auto is_block = [&](const TensorRef& ref) {
    return schedule->tensors[static_cast<std::size_t>(ref.kind)].name.starts_with("kv_block_") &&
           !schedule->tensors[static_cast<std::size_t>(ref.kind)].name.starts_with("kv_block_grad");
  };
  while (cursor.next(*schedule, at)) {
    for (const TensorRef& ref : at.op->acquire) {
      if (is_block(ref)) {
        EXPECT_TRUE(held.insert(resolve(at, ref).key()).second);
      }
    }
    most = std::max(most, held.size());
    for (const TensorRef& ref : at.op->release) {
      if (is_block(ref)) {
        EXPECT_EQ(held.erase(resolve(at, ref).key()), 1u);
      }
    }
  }
  EXPECT_EQ(most, 2u);
  EXPECT_TRUE(held.empty());
}

// What each op of one layer's forward or backward pass waits for: (label, number among ops of that label and pass).
using OpName = std::pair<std::string, int>;
std::map<OpName, std::set<OpName>> waits_of_layer(const Schedule& schedule, int rank, Pass pass) {
  std::map<OpName, std::set<OpName>> waits;
  std::map<EventSlot, OpName> recorded;
  std::map<std::string, int> count;
  Cursor cursor(rank);
  OpInstance at;
  while (cursor.next(schedule, at)) {
    if (at.chunk != 0 || at.layer != 1 || at.op->pass != pass) continue;
    const OpName name{at.op->label, count[at.op->label]++};
    std::set<OpName>& of_op = waits[name];
    for (const EventSlot slot : at.op->waits) of_op.insert(recorded[slot]);
    if (at.op->record != kNoEvent) recorded[at.op->record] = name;
  }
  return waits;
}

// Hop t (from 0) brings the block of step t + 1: that step waits for it and for no later hop, so that hop t + 1 goes on
// beside it; and hop t + 1 waits for the attention of step t, whose buffer it fills.
TEST(RingSchedule, HopsOverlapTheAttentionOfTheBlockAtHand) {
  constexpr int kRanks = 5;
  const auto schedule = schedule_of(some_case(kRanks));
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    const std::string attention = pass == Pass::kForward ? "attention" : "attention_backward";
    const auto waits = waits_of_layer(*schedule, 2, pass);
    EXPECT_TRUE(waits.at({attention, 0}).empty());
    EXPECT_EQ(waits.at({"kv_hop", 0}), (std::set<OpName>{{"kv_pack", 0}}));
    for (int t = 0; t + 1 < kRanks; ++t) {
      EXPECT_EQ(waits.at({attention, t + 1}), (std::set<OpName>{{"kv_hop", t}})) << t;
      if (t + 2 < kRanks) {
        EXPECT_EQ(waits.at({"kv_hop", t + 1}), (std::set<OpName>{{attention, t}})) << t;
      }
      if (pass == Pass::kForward) continue;
      EXPECT_EQ(waits.at({"kv_grad_add", t}), (std::set<OpName>{{"kv_grad_hop", t}})) << t;
      EXPECT_EQ(waits.at({"kv_grad_hop", t + 1}), (std::set<OpName>{{"kv_grad_add", t}})) << t;
    }
    EXPECT_EQ(waits.count({"kv_hop", kRanks - 1}), 0u);
    EXPECT_EQ(waits.count({"kv_grad_hop", kRanks - 1}), pass == Pass::kForward ? 0u : 1u);
    EXPECT_EQ(waits.count({"kv_grad_hop", kRanks}), 0u);
  }
}

std::vector<std::vector<RingStepShape>> shapes_of(const std::vector<PlannedDocument>& documents, std::int64_t ranks,
                                                  CpPlan& plan) {
  plan = *plan_zigzag_cp(documents, ranks);
  return ring_shapes(plan);
}

// A document of 2 N c tokens, chunks of c: step 0 has two causal chunks and a full one, c (c + 1) + c^2 pairs; every
// later step L^2 / 2 pairs with L = 2 c (flashcp.md 2.3): all queries on half the block if it comes from a lower rank,
// else half the queries on all of it.
TEST(RingShapes, StepsOfADividedDocumentAreEqual) {
  constexpr std::int64_t kRanks = 4, kChunk = 3;
  CpPlan plan;
  const auto shapes = shapes_of({{kFirst, 2 * kRanks * kChunk}}, kRanks, plan);
  for (std::int64_t rank = 0; rank < kRanks; ++rank) {
    const auto& steps = shapes[static_cast<std::size_t>(rank)];
    EXPECT_EQ(steps[0].pieces->pairs, kChunk * (kChunk + 1) + kChunk * kChunk);
    for (std::int64_t t = 1; t < kRanks; ++t) {
      const RingStepShape& step = steps[static_cast<std::size_t>(t)];
      EXPECT_EQ(step.pieces->pairs, 2 * kChunk * kChunk);
      const bool lower = t <= rank;  // owner rank - t; otherwise it wraps round to a higher rank
      EXPECT_EQ(step.query_rows->rows, lower ? 2 * kChunk : kChunk) << rank << " " << t;
      EXPECT_EQ(step.key_rows->rows, lower ? kChunk : 2 * kChunk) << rank << " " << t;
      for (const Piece& piece : step.pieces->pieces) EXPECT_EQ(piece.rule, MaskRule::kFull);
    }
  }
}

// The token of each row that a list names.
std::vector<std::pair<DocumentId, std::int64_t>> tokens_of(const RowMap& map, const RowList& list) {
  std::vector<std::pair<DocumentId, std::int64_t>> all, listed;
  for (const RowRun& run : map.runs) {
    for (std::int64_t i = 0; i < run.count; ++i) all.emplace_back(run.document, run.first + i);
  }
  for (const RowSpan& span : list.spans) {
    for (std::int64_t i = 0; i < span.count; ++i) listed.push_back(all[static_cast<std::size_t>(span.begin + i)]);
  }
  return listed;
}

// Brute force: every causal pair of every document once, at the rows that the pieces name.
TEST(RingShapes, EveryPairOnce) {
  const std::vector<PlannedDocument> documents = {{0, 1}, {1, 19}, {2, 5}, {3, 2}, {4, 16}};
  for (const std::int64_t ranks : {1, 2, 3, 4, 5, 8}) {
    CpPlan plan;
    const auto shapes = shapes_of(documents, ranks, plan);
    std::map<std::tuple<DocumentId, std::int64_t, std::int64_t>, int> seen;
    for (const auto& steps : shapes) {
      for (const RingStepShape& step : steps) {
        const auto queries = tokens_of(*steps.front().block_rows, *step.query_rows);
        const auto keys = tokens_of(*step.block_rows, *step.key_rows);
        for (const Piece& piece : step.pieces->pieces) {
          for (std::int64_t q = 0; q < piece.q_count; ++q) {
            for (std::int64_t k = 0; k < piece.k_count; ++k) {
              if (!piece.allows(piece.query_token(q), piece.key_token(k))) continue;
              const auto& query = queries[static_cast<std::size_t>(piece.q_row + q)];
              const auto& key = keys[static_cast<std::size_t>(piece.k_row + k)];
              ASSERT_EQ(query.first, key.first);
              ASSERT_EQ(query.second, piece.query_token(q));
              ASSERT_EQ(key.second, piece.key_token(k));
              ++seen[{query.first, query.second, key.second}];
            }
          }
        }
      }
    }
    std::int64_t pairs = 0;
    for (const PlannedDocument& document : documents) pairs += causal_pairs(document.tokens);
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), pairs) << ranks;
    for (const auto& [pair, count] : seen) {
      EXPECT_EQ(count, 1);
      EXPECT_LE(std::get<2>(pair), std::get<1>(pair));
    }
  }
}

TEST(RingStrategy, RefusesAVeryLargeRing) {
  RingCase of = some_case(1025);
  const Planned planned = plan_zigzag_step(of);
  ASSERT_FALSE(planned.has_value());
  EXPECT_EQ(planned.error(), "a ring of 1025 ranks is larger than 1024");
}

}  // namespace
}  // namespace longhaul
