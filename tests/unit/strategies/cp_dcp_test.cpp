// The hypergraph partitioner against exhaustive search and known cuts; DCP's plan and schedule: every pair once, bytes
// of the schedule equal to the cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "sim/core/rng.h"
#include "sim/schedule/checks.h"
#include "sim/strategies/context_parallel/dcp.h"
#include "sim/strategies/context_parallel/dcp_shapes.h"
#include "sim/strategies/registry.h"
#include "tests/unit/strategies/ring_case.h"

namespace longhaul {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

using Documents = std::vector<PlannedDocument>;

Documents documents_of(const std::vector<std::int64_t>& lengths) {
  Documents documents;
  for (const std::int64_t tokens : lengths) documents.push_back({static_cast<DocumentId>(documents.size()), tokens});
  return documents;
}

// Two triangles joined by one cheap net: pins {0,1,2}, {3,4,5} cost 5 each, {2,3} costs 1.
Hypergraph two_triangles() {
  Hypergraph graph;
  graph.vertices.assign(6, {1, 1});
  graph.nets = {{5, {0, 1, 2}}, {5, {3, 4, 5}}, {1, {2, 3}}};
  return graph;
}

Assignment each_alone(std::size_t vertices) {
  Assignment clusters;
  for (std::size_t v = 0; v < vertices; ++v) clusters.push_back(static_cast<std::int32_t>(v));
  return clusters;
}

TEST(HypergraphPartition, CutIsCostTimesPartsLessOne) {
  const Hypergraph graph = two_triangles();
  EXPECT_EQ(cut_cost(graph, {0, 0, 0, 1, 1, 1}), 1);
  EXPECT_EQ(cut_cost(graph, {0, 1, 2, 0, 0, 0}), 5 * 2 + 1);  // one net over three parts, {2,3} over two
  EXPECT_EQ(cut_cost(graph, {0, 0, 0, 0, 0, 0}), 0);
  EXPECT_THAT(part_weights(graph, {0, 0, 0, 1, 1, 2}, 3),
              ElementsAre(Hypergraph::Weights{3, 3}, Hypergraph::Weights{2, 2}, Hypergraph::Weights{1, 1}));
}

TEST(HypergraphPartition, CutsTheCheapNet) {
  const Hypergraph graph = two_triangles();
  const std::vector<Assignment> levels = {each_alone(6)};
  const Assignment parts = partition_hypergraph(graph, levels, 2, 0);
  EXPECT_EQ(cut_cost(graph, parts), 1);
  EXPECT_THAT(part_weights(graph, parts, 2), Each(Hypergraph::Weights{3, 3}));
}

TEST(HypergraphPartition, OnePartAndNoVertices) {
  const std::vector<Assignment> levels = {each_alone(6)};
  EXPECT_THAT(partition_hypergraph(two_triangles(), levels, 1, 0), Each(0));
  const std::vector<Assignment> none = {Assignment()};
  EXPECT_TRUE(partition_hypergraph(Hypergraph(), none, 4, 0.1).empty());
}

// A vertex of weight 9 among ones: no part can keep 10 % of the mean (3 x 1.1); the least excess puts it alone.
TEST(HypergraphPartition, HeavyVertexStandsAlone) {
  Hypergraph graph;
  graph.vertices = {{9, 0}, {1, 0}, {1, 0}, {1, 0}};
  graph.nets = {{100, {0, 1, 2, 3}}};
  const std::vector<Assignment> levels = {each_alone(4)};
  const Assignment parts = partition_hypergraph(graph, levels, 4, 0.1);
  EXPECT_EQ(std::count(parts.begin(), parts.end(), parts[0]), 1);
}

// Random graphs of 10 vertices in 2 parts, 20 % slack: the cut of all 2^10 assignments within bounds is at most a
// tenth better in sum; each single result is within bounds where any assignment is.
TEST(HypergraphPartition, IsNearTheBestOfAllAssignments) {
  Rng rng(1, "hypergraph partition");
  std::int64_t ours = 0, best_sum = 0;
  for (int trial = 0; trial < 60; ++trial) {
    Hypergraph graph;
    constexpr std::int32_t kVertices = 10;
    for (int v = 0; v < kVertices; ++v) graph.vertices.push_back({rng.integer(1, 5), rng.integer(1, 5)});
    for (int n = 0; n < 12; ++n) {
      Hypergraph::Net net{rng.integer(1, 9), {}};
      for (std::int32_t v = 0; v < kVertices; ++v) {
        if (rng.integer(0, 3) == 0) net.pins.push_back(v);
      }
      graph.nets.push_back(net);
    }
    const auto sums = part_weights(graph, Assignment(kVertices, 0), 1).front();
    const auto fits = [&](const Assignment& parts) {
      for (const auto& weights : part_weights(graph, parts, 2)) {
        for (std::size_t d = 0; d < 2; ++d) {
          if (static_cast<double>(weights[d]) > 0.6 * static_cast<double>(sums[d])) return false;
        }
      }
      return true;
    };
    std::int64_t best = -1;
    for (int bits = 0; bits < 1 << kVertices; ++bits) {
      Assignment parts;
      for (int v = 0; v < kVertices; ++v) parts.push_back(bits >> v & 1);
      if (fits(parts) && (best < 0 || cut_cost(graph, parts) < best)) best = cut_cost(graph, parts);
    }
    ASSERT_GE(best, 0);
    const std::vector<Assignment> levels = {each_alone(kVertices)};
    const Assignment parts = partition_hypergraph(graph, levels, 2, 0.2);
    EXPECT_TRUE(fits(parts)) << trial;
    ours += cut_cost(graph, parts);
    best_sum += best;
  }
  EXPECT_GE(ours, best_sum);
  EXPECT_LE(static_cast<double>(ours), 1.1 * static_cast<double>(best_sum)) << ours << " against " << best_sum;
}

DcpOptions small_blocks(std::int64_t tokens) {
  DcpOptions options;
  options.block_tokens = tokens;
  options.query_bytes = 5;
  options.key_bytes = 2;
  return options;
}

// 16 documents of 8 tokens on 8 ranks: two whole documents a rank, nothing moves (flashcp.md 6.6, for blocks).
TEST(Dcp, EqualDocumentsStayWhole) {
  const DcpPlan plan = *plan_dcp(documents_of(std::vector<std::int64_t>(16, 8)), 8, small_blocks(4));
  EXPECT_EQ(plan.cut_bytes, 0);
  EXPECT_THAT(dcp_pairs(plan), Each(2 * causal_pairs(8)));
  for (const std::vector<Shard>& shards : plan.rows.ranks) {
    ASSERT_EQ(shards.size(), 2u);
    for (const Shard& shard : shards) EXPECT_EQ(shard.tokens, 8);
  }
}

// Left out, blocks are an eighth of an even share and at most 1,024 tokens; given, they are as given, up to 2^15
// computation blocks: 2^18 tokens in blocks of 512 make 512 x 513 / 2, in blocks of 1,024 256 x 257 / 2 = 32,896 >
// 2^15, in blocks of 2,048 8,256.
TEST(Dcp, BlocksAreAsGiven) {
  const auto used = [](std::int64_t tokens, std::int64_t ranks, std::int64_t wanted) {
    return plan_dcp(documents_of({tokens}), ranks, small_blocks(wanted))->block_tokens;
  };
  EXPECT_EQ(used(4096, 4, 0), 128);
  EXPECT_EQ(used(1 << 16, 4, 0), 1024);
  EXPECT_EQ(used(4096, 4, 2048), 2048);
  EXPECT_EQ(used(4096, 4, 100'000), 100'000);
  EXPECT_EQ(used(1 << 18, 2, 512), 2048);
  const DcpPlan plan = *plan_dcp(documents_of({4096, 100}), 4, small_blocks(1024));
  EXPECT_EQ(plan.blocks.size(), 5u);
  EXPECT_EQ(dcp_plan_json(plan)["block_tokens"], 1024);
}

// A document has one computation block however large blocks are. 40,000 documents of 2 tokens, more than 2^15 in all,
// leave a long one cut: 8,192 tokens are 136 pairs of 16 blocks of 512. On one rank there is nothing to partition.
TEST(Dcp, ManyDocumentsDoNotMakeLongOnesWhole) {
  std::vector<std::int64_t> lengths(40'000, 2);
  lengths.push_back(8192);
  const DcpPlan plan = *plan_dcp(documents_of(lengths), 1, small_blocks(512));
  EXPECT_EQ(plan.block_tokens, 512);
  EXPECT_EQ(plan.work.size(), 40'000u + 136);
}

// The same on 4 ranks: 88,192 tokens, 8,192 x 8,193 / 2 + 40,000 x 3 pairs. Moves that bring ranks within the slack are
// found without looking at every document each time; tokens and pairs end within 10 % of the mean.
TEST(Dcp, ManyDocumentsAreBalanced) {
  std::vector<std::int64_t> lengths(40'000, 2);
  lengths.push_back(8192);
  const DcpPlan plan = *plan_dcp(documents_of(lengths), 4, small_blocks(512));
  EXPECT_LE(plan.rows.padded_tokens_per_rank, 24'252);  // 1.1 x 88,192 / 4
  const std::vector<std::int64_t> pairs = dcp_pairs(plan);
  EXPECT_LE(*std::max_element(pairs.begin(), pairs.end()), (causal_pairs(8192) + 120'000) * 11 / 40);
}

// Every pair of blocks of a document once, pairs in all as in the document.
TEST(Dcp, WorkCoversEveryPairOnce) {
  const Documents documents = documents_of({37, 1, 100, 9});
  const DcpPlan plan = *plan_dcp(documents, 4, small_blocks(8));
  std::map<std::pair<std::int32_t, std::int32_t>, int> met;
  for (const DcpWork& work : plan.work) ++met[{work.query, work.key}];
  for (const auto& [pair, times] : met) EXPECT_EQ(times, 1);
  std::int64_t pairs = 0, expected = 0, tokens = 0;
  for (const std::int64_t of_rank : dcp_pairs(plan)) pairs += of_rank;
  for (const PlannedDocument& document : documents) expected += causal_pairs(document.tokens);
  for (const DcpBlock& block : plan.blocks) tokens += block.tokens;
  EXPECT_EQ(pairs, expected);
  EXPECT_EQ(tokens, 147);
}

// One document of 128 blocks on 4 ranks: tokens and pairs within the slack of 10 %, and less moved than if all work
// stood with its queries in a zigzag cut, where rank i needs all keys before its chunks but its own: (2N - i) chunks
// less two (flashcp.md 1.2), sum over 4 ranks of (6 - i) chunks = 18 chunks of 16 blocks of 8 tokens.
TEST(Dcp, OneDocumentIsBalancedAndMovesLessThanZigzag) {
  const DcpPlan plan = *plan_dcp(documents_of({1024}), 4, small_blocks(8));
  for (const std::int64_t pairs : dcp_pairs(plan)) {
    EXPECT_LE(static_cast<double>(pairs), 1.1 * static_cast<double>(causal_pairs(1024)) / 4);
  }
  for (const std::vector<Shard>& shards : plan.rows.ranks) {
    EXPECT_LE(static_cast<double>(cp_rank_load(shards).tokens), 1.1 * 1024 / 4);
  }
  EXPECT_LT(plan.cut_bytes, 18 * 16 * 8 * 2);
  EXPECT_GT(plan.cut_bytes, 0);
}

// With nodes of 2 ranks, documents that fill a node do not leave it.
TEST(Dcp, NodesKeepTheirDocuments) {
  DcpOptions options = small_blocks(4);
  options.ranks_per_node = 2;
  const DcpPlan plan = *plan_dcp(documents_of({64, 64}), 4, options);
  std::map<DocumentId, std::vector<std::int32_t>> nodes;
  for (const DcpWork& work : plan.work) {
    nodes[plan.blocks[static_cast<std::size_t>(work.query)].document].push_back(work.worker / 2);
  }
  for (const auto& [document, of_work] : nodes) EXPECT_THAT(of_work, Each(of_work.front()));
}

TEST(Dcp, RefusesWhatNoGroupCanShare) {
  EXPECT_EQ(plan_dcp({}, 4, {}).error(), "the sequence has no documents");
  EXPECT_EQ(plan_dcp(documents_of({4}), 0, {}).error(), "the group needs at least 1 rank, not 0");
}

TEST(Dcp, PlanNamesItsBalance) {
  const auto json = dcp_plan_json(*plan_dcp(documents_of({8, 8}), 2, small_blocks(0)));
  EXPECT_EQ(json.at("imbalance"), 1.0);
  EXPECT_EQ(json.at("token_imbalance"), 1.0);
  EXPECT_EQ(json.at("cut_bytes_layer"), 0);
  EXPECT_EQ(json.at("token_blocks"), 16);  // 8 a rank: of 1 token
  EXPECT_EQ(json.at("computation_blocks"), 72);
}

// Bytes that all ranks receive in one layer, by pass.
std::map<Pass, std::int64_t> received(const Schedule& schedule) {
  std::map<Pass, std::int64_t> bytes;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    Cursor cursor(static_cast<std::int32_t>(rank));
    OpInstance at;
    while (cursor.next(schedule, at)) {
      if (at.op->kind != OpKind::kCollective || at.layer != 1 || is_empty(schedule, at)) continue;
      if (schedule.roles[static_cast<std::size_t>(at.op->role)] != "context") continue;
      for (const PeerBytes& peer : exchange_bytes(schedule, at)) bytes[at.op->pass] += peer.receive;
    }
  }
  return bytes;
}

// Blocks larger than the sequence: fewer blocks than ranks, so that some ranks hold a row of padding and nothing else.
TEST(DcpSchedule, RunsWithRanksThatHoldNothing) {
  RingCase of;
  of.cp = 4;
  of.sequences = {{40}};
  StrategyRequest request = ring_request(of);
  request.options = {{"block_tokens", 1024}};
  const Planned planned = find_strategy("dcp")->plan(request);
  ASSERT_TRUE(planned.has_value()) << planned.error();
  EXPECT_EQ(planned->plan().at(0).at("plan").at("token_blocks"), 1);
  const CheckResult checked = check_schedule(*planned->schedule);
  EXPECT_TRUE(checked.ok()) << (checked.ok() ? "" : checked.violations.front());
}

// The cut is what the step moves: forward, recompute and backward pass of a layer, whatever the number of divisions.
TEST(DcpSchedule, MovesTheCut) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
    for (const int divisions : {2, 4}) {
      RingCase of;
      of.cp = 4;
      of.recompute = recompute;
      of.sequences = {{137, 1, 8, 60, 12, 5}};
      StrategyRequest request = ring_request(of);
      request.options = {{"block_tokens", 4}, {"divisions", divisions}};
      const Planned planned = find_strategy("dcp")->plan(request);
      ASSERT_TRUE(planned.has_value()) << planned.error();
      std::int64_t sum = 0;
      const auto by_pass = received(*planned->schedule);
      for (const auto& [pass, bytes] : by_pass) sum += bytes;
      EXPECT_EQ(sum, planned->plan().at(0).at("plan").at("cut_bytes_layer").get<std::int64_t>());
      EXPECT_GT(sum, 0);
      EXPECT_EQ(by_pass.count(Pass::kRecompute), recompute == Recompute::kFull ? 1u : 0u);
    }
  }
}

// 4 query heads of 4, 2 K/V heads: a query row away costs 2 x 32 + 16 bytes forward and 3 x 32 + 16 backward, a key
// row 32 a pass.
TEST(DcpSchedule, BytesOfARow) {
  const ModelShape model = ring_model({});
  EXPECT_EQ(BlockScheme::query_forward_bytes(model), 80);
  EXPECT_EQ(BlockScheme::query_backward_bytes(model), 112);
  EXPECT_EQ(BlockScheme::key_pass_bytes(model), 32);
}

// One plan by hand: documents of two blocks, rank 1 computes the queries of rank 0's second block against its first.
TEST(DcpSchedule, ShapesOfAPlanByHand) {
  DcpPlan plan;
  plan.rows.ranks = {{{0, 0, 4, 4}}, {{1, 0, 2, 2}}};
  plan.blocks = {{0, 0, 2, 0}, {0, 2, 2, 0}, {1, 0, 2, 1}};
  plan.work = {{0, 0, 0}, {1, 0, 1}, {1, 1, 0}, {2, 2, 1}};
  const std::vector<BlockShape> shapes = dcp_shapes(plan, 1);
  // Rank 0: two diagonal blocks, which cannot be one causal piece (pairs (2..3, 0..1) are elsewhere).
  EXPECT_EQ(shapes[0].local_pieces->pairs, 6);
  EXPECT_EQ(shapes[0].local_pieces->pieces.size(), 2u);
  const BlockDivision& sender = shapes[0].divisions[0];
  EXPECT_EQ(sender.query_sends->spans, (std::vector<RowSpan>{{2, 2}}));
  EXPECT_EQ(sender.key_sends->spans, (std::vector<RowSpan>{{0, 2}}));
  const BlockDivision& worker = shapes[1].divisions[0];
  EXPECT_EQ(worker.query_rows->rows, 2);
  EXPECT_EQ(worker.key_rows->rows, 2);
  ASSERT_EQ(worker.remote_pieces->pieces.size(), 1u);
  EXPECT_EQ(worker.remote_pieces->pieces[0].rule, MaskRule::kFull);
  EXPECT_EQ(worker.remote_pieces->pieces[0].operand, 1);
  EXPECT_EQ(worker.remote_pieces->pairs, 4);
  EXPECT_EQ(worker.own_pieces->pairs, 0);
}

// Adjoining tiles join: a document whole on one rank is one causal piece, not one a tile.
TEST(DcpSchedule, TilesJoin) {
  const DcpPlan plan = *plan_dcp(documents_of({64, 64}), 2, small_blocks(4));
  EXPECT_EQ(plan.cut_bytes, 0);
  const std::vector<BlockShape> shapes = dcp_shapes(plan, 3);
  for (const BlockShape& shape : shapes) {
    ASSERT_EQ(shape.local_pieces->pieces.size(), 1u);
    EXPECT_EQ(shape.local_pieces->pieces[0].rule, MaskRule::kCausal);
    EXPECT_EQ(shape.local_pieces->pairs, causal_pairs(64));
  }
}

TEST(DcpOptionsCheck, NamesWhatIsWrong) {
  Errors errors;
  const Json options = {{"block_tokens", 0}, {"imbalance_intra", -0.1}, {"divisions", 9}, {"imbalance_inter", 0.4}};
  find_strategy("dcp")->check_options(options, "study.json", "/strategies/0", errors);
  std::vector<std::string> paths;
  for (const InputError& error : errors) paths.push_back(error.path);
  EXPECT_THAT(paths, UnorderedElementsAre("/strategies/0/block_tokens", "/strategies/0/imbalance_intra",
                                          "/strategies/0/divisions"));
}

}  // namespace
}  // namespace longhaul
