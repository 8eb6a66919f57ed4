// Worked values of BASP's paper notes (basp.md 2.3, the whole table) and validation targets 2.11 b, c, f.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "sim/strategies/sequence_parallel/plan.h"
#include "sim/workload/model.h"

namespace longhaul {
namespace {

struct Row {
  ModelShape model;
  std::int64_t replication_8, replication_4;
  const char *buffer_ulysses, *buffer_basp, *gpu_ulysses, *gpu_basp, *node_ulysses, *gather_gb;
};

ModelShape shape(const char* name, std::int64_t layers, std::int64_t hidden, std::int64_t ffn, std::int64_t q_heads,
                 std::int64_t kv_heads, std::int64_t head_dim, std::int64_t vocab, bool tied) {
  ModelShape model;
  model.name = name;
  model.layers = layers;
  model.hidden = hidden;
  model.ffn = ffn;
  model.q_heads = q_heads;
  model.kv_heads = kv_heads;
  model.head_dim = head_dim;
  model.vocab = vocab;
  model.tied_embeddings = tied;
  return model;
}

std::vector<Row> table() {
  return {
      {shape("Llama-3.2-1B", 16, 2048, 8192, 32, 8, 64, 128256, true), 1, 1, "41.94", "41.94", "36.70", "31.46",
       "20.97", "2.16"},
      {shape("Llama-3.2-3B", 28, 3072, 8192, 24, 8, 128, 128256, true), 1, 1, "67.11", "67.11", "58.72", "50.33",
       "33.55", "5.62"},
      {shape("Llama-3.1-8B", 32, 4096, 14336, 32, 8, 128, 128256, false), 1, 1, "83.89", "83.89", "73.40", "62.91",
       "41.94", "14.05"},
      {shape("Qwen1.5-1.8B", 24, 2048, 5504, 16, 16, 128, 151936, false), 1, 1, "67.11", "67.11", "58.72", "50.33",
       "33.55", "3.21"},
      {shape("Qwen2.5-3B", 36, 2048, 11008, 16, 2, 128, 151936, true), 4, 2, "50.33", "41.94", "44.04", "31.46",
       "25.17", "5.40"},
      {shape("Qwen3-8B", 36, 4096, 12288, 32, 8, 128, 151936, false), 1, 1, "83.89", "83.89", "73.40", "62.91", "41.94",
       "14.33"},
  };
}

std::string mb(std::int64_t bytes) { return fmt::format("{:.2f}", static_cast<double>(bytes) / 1e6); }

AllToAllVolume volume_of(const SpPlan& plan, const ModelShape& model, std::int64_t gpus_per_node) {
  const SpGroup& group = plan.groups.front();
  const std::int64_t on_node = members_on_node(group.first_rank, plan.group_size, gpus_per_node, 0);
  return all_to_all_volume(plan.heads, group.rows_per_rank, model.head_dim, 2, on_node);
}

// bf16, N = 8, G = 4, B = 2, S = 16384.
TEST(SpOracle, TableOfWorkedValues) {
  const std::vector<std::int64_t> sequences = {16384, 16384};
  for (const Row& row : table()) {
    SCOPED_TRACE(row.model.name);
    const SpPlan ulysses = *plan_ulysses(sequences, 8, row.model.q_heads, row.model.kv_heads);
    const SpPlan basp = *plan_basp(sequences, 8, row.model.q_heads, row.model.kv_heads);
    EXPECT_EQ(ulysses.groups.front().rows_per_rank, 4096);
    EXPECT_EQ(basp.groups.front().rows_per_rank, 4096);
    EXPECT_EQ(basp.group_size, 4);
    EXPECT_EQ(ulysses.heads.kv_replication, row.replication_8);
    EXPECT_EQ(basp.heads.kv_replication, row.replication_4);
    const AllToAllVolume u = volume_of(ulysses, row.model, 4);
    const AllToAllVolume b = volume_of(basp, row.model, 4);
    EXPECT_EQ(mb(u.buffer()), row.buffer_ulysses);
    EXPECT_EQ(mb(b.buffer()), row.buffer_basp);
    EXPECT_EQ(mb(u.leaves_gpu), row.gpu_ulysses);
    EXPECT_EQ(mb(b.leaves_gpu), row.gpu_basp);
    EXPECT_EQ(mb(u.leaves_node), row.node_ulysses);
    EXPECT_EQ(b.leaves_node, 0);
    const std::int64_t gather = zero3_gather_bytes(total_parameters(row.model), 8, 2);
    EXPECT_EQ(fmt::format("{:.2f}", static_cast<double>(gather) / 1e9), row.gather_gb);
    // 2.11 f: buffers equal Ulysses' unless N > h_kv.
    EXPECT_EQ(u.buffer() == b.buffer(), 8 <= row.model.kv_heads);
  }
}

// "For B = 8, S = 8192, Llama-3.2-1B": n = 8192, b = 83.89 MB, Ulysses leaves GPU 73.40, node 41.94; BASP 0 and 0.
TEST(SpOracle, EightSequencesOfOneRankEach) {
  const std::vector<std::int64_t> sequences(8, 8192);
  const ModelShape model = table().front().model;
  const SpPlan ulysses = *plan_ulysses(sequences, 8, 32, 8);
  const SpPlan basp = *plan_basp(sequences, 8, 32, 8);
  EXPECT_EQ(ulysses.groups.front().rows_per_rank, 8192);
  EXPECT_EQ(basp.groups.front().rows_per_rank, 8192);
  const AllToAllVolume u = volume_of(ulysses, model, 4);
  const AllToAllVolume b = volume_of(basp, model, 4);
  EXPECT_EQ(mb(u.buffer()), "83.89");
  EXPECT_EQ(mb(b.buffer()), "83.89");
  EXPECT_EQ(mb(u.leaves_gpu), "73.40");
  EXPECT_EQ(mb(u.leaves_node), "41.94");
  EXPECT_EQ(b.leaves_gpu, 0);
  EXPECT_EQ(b.leaves_node, 0);
}

// 2.11 a on the level of plans: one sequence gives Ulysses, field by field.
TEST(SpOracle, OneSequenceIsUlysses) {
  for (const std::int64_t ranks : {1, 2, 4, 8, 16, 32}) {
    const std::vector<std::int64_t> sequence = {1000};
    EXPECT_EQ(*plan_basp(sequence, ranks, 32, 8), *plan_ulysses(sequence, ranks, 32, 8));
  }
}

// 2.11 b: nothing leaves the node when K <= G and the groups are aligned; each of 2.2's topology classes otherwise.
TEST(SpOracle, OffNodeBytes) {
  for (const std::int64_t per_node : {4, 8}) {
    for (std::int64_t sequences = 1; sequences <= 32; sequences *= 2) {
      const std::int64_t ranks = 32, size = ranks / sequences;
      const std::vector<std::int64_t> lengths(static_cast<std::size_t>(sequences), 4096);
      const SpPlan plan = *plan_basp(lengths, ranks, 32, 8);
      for (const SpGroup& group : plan.groups) {
        for (std::int64_t local = 0; local < size; ++local) {
          const std::int64_t on_node = members_on_node(group.first_rank, size, per_node, local);
          const AllToAllVolume volume = all_to_all_volume(plan.heads, group.rows_per_rank, 128, 2, on_node);
          EXPECT_EQ(on_node, std::min(size, per_node));
          EXPECT_EQ(volume.leaves_node * size, volume.buffer() * (size - on_node));
          EXPECT_EQ(volume.leaves_node == 0, size <= per_node);
        }
        EXPECT_EQ(group_topology(group.first_rank, size, per_node),
                  size <= per_node ? GroupTopology::kInsideNode : GroupTopology::kWholeNodes);
      }
    }
  }
  // Groups of 6 on nodes of 4: ranks 6-11 lie 2 on node 1 and 4 on node 2.
  EXPECT_EQ(group_topology(6, 6, 4), GroupTopology::kStraddles);
  EXPECT_EQ(members_on_node(6, 6, 4, 0), 2);
  EXPECT_EQ(members_on_node(6, 6, 4, 1), 2);
  EXPECT_EQ(members_on_node(6, 6, 4, 2), 4);
}

}  // namespace
}  // namespace longhaul
