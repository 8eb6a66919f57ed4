// Breakdown, ends, bound and summary from hand-made totals.
#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <utility>
#include <vector>

#include "sim/analysis/summary.h"
#include "sim/core/data_files.h"
#include "sim/workload/arithmetic.h"

namespace longhaul {
namespace {

Time ms(std::int64_t value) { return Time::from_ps(value * 1'000'000'000); }

Cluster cluster_of(int gpus) {
  const auto topology = read_topology("dgx-h200-ndr", data_directory());
  EXPECT_TRUE(topology.has_value());
  const auto cluster = make_cluster(*topology, gpus);
  EXPECT_TRUE(cluster.has_value());
  return *cluster;
}

KernelModel kernels_of(const Cluster& cluster) {
  const auto kernels = load_kernel_model(cluster.device(), data_directory());
  EXPECT_TRUE(kernels.has_value());
  return *kernels;
}

// forward gemm 10 + forward attention 4 + backward element-wise 3 + recompute 5 + optimizer 2, and idle
// 1 + 6 + 7 + 8 + 0: 46 ms.
RankTotals rank_of() {
  RankTotals rank;
  const auto set = [&](Pass pass, OpKind kind, std::int64_t value) {
    rank.compute[static_cast<std::size_t>(pass)][static_cast<std::size_t>(kind)] = ms(value);
  };
  set(Pass::kForward, OpKind::kGemm, 10);
  set(Pass::kForward, OpKind::kAttention, 4);
  set(Pass::kBackward, OpKind::kElementwise, 3);
  set(Pass::kRecompute, OpKind::kGemm, 5);
  set(Pass::kOptimizer, OpKind::kOptimizer, 2);
  rank.imbalance = ms(1);
  rank.exposed_communication = ms(6);
  rank.bubble = ms(7);
  rank.launch = ms(8);
  return rank;
}

TEST(Breakdown, PartsGoWhereTheTermsSay) {
  RankTotals rank = rank_of();
  rank.contention = ms(9);
  const TimeSplit split = split_time(rank);
  EXPECT_EQ(split[TimePart::kCompute], ms(17));
  EXPECT_EQ(split[TimePart::kRecompute], ms(5));
  EXPECT_EQ(split[TimePart::kOptimizer], ms(2));
  EXPECT_EQ(split[TimePart::kContention], ms(9));
  EXPECT_EQ(split[TimePart::kExposedCommunication], ms(6));
  EXPECT_EQ(split[TimePart::kBubble], ms(7));
  EXPECT_EQ(split[TimePart::kImbalance], ms(1));
  EXPECT_EQ(split[TimePart::kLaunch], ms(8));
  EXPECT_EQ(split[TimePart::kTail], Time::zero());
  EXPECT_EQ(split.sum(), ms(55));
  const ComputeSplit compute = split_compute(rank_of());
  EXPECT_EQ(compute.gemm, ms(10));
  EXPECT_EQ(compute.attention, ms(4));
  EXPECT_EQ(compute.memory, ms(3));
}

TEST(Breakdown, TheLargestCandidateBounds) {
  RankTotals rank = rank_of();
  EXPECT_EQ(bound_by(rank, false), "compute: gemm");
  rank.bubble = ms(11);
  EXPECT_EQ(bound_by(rank, false), "bubble");
  rank.imbalance = ms(12);
  EXPECT_EQ(bound_by(rank, false), "imbalance");
  rank.launch = ms(13);
  EXPECT_EQ(bound_by(rank, false), "launch");
  rank.compute[static_cast<std::size_t>(Pass::kRecompute)][static_cast<std::size_t>(OpKind::kGemm)] = ms(14);
  EXPECT_EQ(bound_by(rank, false), "recompute");
  rank.compute[static_cast<std::size_t>(Pass::kForward)][static_cast<std::size_t>(OpKind::kAttention)] = ms(15);
  EXPECT_EQ(bound_by(rank, false), "compute: attention");
  // Element-wise 3 ms and optimizer 2 ms count together: 13 + 3 = 16.
  rank.compute[static_cast<std::size_t>(Pass::kOptimizer)][static_cast<std::size_t>(OpKind::kOptimizer)] = ms(13);
  EXPECT_EQ(bound_by(rank, false), "memory traffic");
  rank.contention = ms(17);
  EXPECT_EQ(bound_by(rank, false), "contention");
}

std::vector<std::int64_t> bytes_on(const Cluster& cluster, std::initializer_list<std::pair<const char*, int>> loads) {
  std::vector<std::int64_t> bytes(cluster.links().size());
  for (const auto& [name, load] : loads) {
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] += cluster.links()[i].name == name ? load : 0;
  }
  return bytes;
}

// NVLink carries 370.8 GB/s out of a GPU, its NIC 48: 8 bytes inside and 1 between nodes take longer inside, 7 and 1
// longer between. The links may be of different ranks.
TEST(Breakdown, TheBusiestLinkDecides) {
  const Cluster cluster = cluster_of(16);
  EXPECT_FALSE(network_is_busiest(bytes_on(cluster, {{"n0.g0.nvl>", 8'000}, {"n1.nic3<", 1'000}}), cluster));
  EXPECT_TRUE(network_is_busiest(bytes_on(cluster, {{"n0.g0.nvl>", 7'000}, {"n1.nic3<", 1'000}}), cluster));
  EXPECT_FALSE(network_is_busiest(bytes_on(cluster, {{"n0.g0.nvl>", 7'000}}), cluster));
  EXPECT_FALSE(network_is_busiest(bytes_on(cluster, {}), cluster));
  EXPECT_FALSE(network_is_busiest({}, cluster));
}

// A PCIe link carries only what goes between nodes: 25.2 GB/s before a NIC of 48 that four GPUs share.
TEST(Breakdown, PcieBelongsToTheNetwork) {
  const auto topology = read_topology("a100-40gb-2x4", data_directory());
  ASSERT_TRUE(topology.has_value());
  const Cluster cluster = *make_cluster(*topology, 8);
  const auto bytes = bytes_on(cluster, {{"n0.g1.pcie>", 1'000}, {"n0.nic0>", 1'000}, {"n0.g0>g1", 3'000}});
  EXPECT_TRUE(network_is_busiest(bytes, cluster));  // 39.7, 20.8 and 37.5 ns
}

TEST(Breakdown, ExposedCommunicationNamesTheBusierSide) {
  RankTotals rank = rank_of();
  rank.exposed_communication = ms(100);
  EXPECT_EQ(bound_by(rank, true), "exposed communication between nodes");
  EXPECT_EQ(bound_by(rank, false), "exposed communication inside a node");
}

// Four calls of 8 MB a rank, mean over 16 ranks: 8 MB, between 1 and 64 MiB. Which class is taken follows the busiest
// link and the network.
TEST(Breakdown, CollectivesErrByTheClassOfTheRun) {
  const Cluster cluster = cluster_of(16);
  const Expected<NcclResiduals> residuals = read_nccl_residuals(data_directory());
  ASSERT_TRUE(residuals) << residuals.error().front().to_string();
  Totals totals;
  totals.collectives = 4;
  totals.ranks.resize(16);
  for (RankTotals& rank : totals.ranks) rank.sent_intra_node = 32'000'000;
  totals.link_bytes.assign(cluster.links().size(), 0);
  EXPECT_EQ(collective_half_width(totals, cluster, *residuals), residuals->half_width[0][2]);
  for (std::size_t i = 0; i < cluster.links().size(); ++i) {
    if (cluster.links()[i].scope == LinkScope::kInterNode) totals.link_bytes[i] = 1;
  }
  EXPECT_EQ(collective_half_width(totals, cluster, *residuals), residuals->half_width[1][2]);
  for (RankTotals& rank : totals.ranks) rank.sent_inter_node = 1'000'000'000;
  EXPECT_EQ(collective_half_width(totals, cluster, *residuals), residuals->half_width[1][3]);
  totals.collectives = 1'000'000;
  EXPECT_EQ(collective_half_width(totals, cluster, *residuals), residuals->half_width[1][0]);
  EXPECT_EQ(residual_nodes(*read_topology("aws-p5", data_directory()), true), ResidualNodes::kSeveralOther);
}

Schedule schedule_of(const ModelShape& model) {
  Schedule schedule;
  schedule.model = model;
  Batch batch;
  batch.documents = {600, 424};
  batch.sequences = {{{0, 1}, 1024}};
  batch.context_tokens = 1024;
  schedule.batch = std::make_shared<const Batch>(batch);
  return schedule;
}

ModelShape small_model() {
  ModelShape model;
  model.hidden = 64;
  model.ffn = 128;
  model.q_heads = 8;
  model.kv_heads = 4;
  model.head_dim = 8;
  model.layers = 2;
  model.vocab = 97;
  return model;
}

Totals totals_of() {
  Totals totals;
  totals.step = ms(46);
  totals.ranks = {rank_of(), rank_of()};
  // The second rank computes 12 ms less and idles that long at its end.
  totals.ranks[1].compute[0][static_cast<std::size_t>(OpKind::kGemm)] = Time::zero();
  totals.ranks[1].tail = ms(10);
  totals.ranks[1].peak_bytes = 500;
  totals.ranks[1].sent_intra_node = 10;
  totals.ranks[0].sent_intra_node = 30;
  totals.ranks[0].peak_bytes = 400;
  totals.ranks[1].peak_categories[static_cast<std::size_t>(MemoryCategory::kLogits)] = 300;
  totals.ranks[1].peak_categories[static_cast<std::size_t>(MemoryCategory::kOptimizer)] = 200;
  return totals;
}

// MFU = (6 x matmul parameters x tokens + 12 x layers x Hq x d x pairs) / (step x GPUs x peak), with
// 600 x 601 / 2 + 424 x 425 / 2 = 270,400 pairs. Matmul parameters: 2 layers x (64 x 128 + 64 x 64 + 64 x 256 +
// 128 x 64) + 97 x 64 = 79,936.
TEST(Summary, RatesFollowTheTerms) {
  const Cluster cluster = cluster_of(2);
  const KernelModel kernels = kernels_of(cluster);
  const StepSummary summary = summarize(totals_of(), schedule_of(small_model()), {}, cluster, kernels);
  const double flops = 6.0 * 79'936 * 1024 + 12.0 * 2 * 64 * 270'400;
  EXPECT_DOUBLE_EQ(summary.mfu, flops / (0.046 * 2 * kernels.device().bf16_dense.value));
  EXPECT_DOUBLE_EQ(summary.tokens_per_second_per_gpu, 1024 / (0.046 * 2));
  EXPECT_DOUBLE_EQ(summary.imbalance, 24.0 / 19);  // 24 and 14 ms
  EXPECT_EQ(summary.peak_bytes, 500);
  EXPECT_EQ(summary.peak_rank, 1);
  EXPECT_EQ(largest_category(summary.peak_categories), MemoryCategory::kLogits);
  EXPECT_EQ(summary.intra_node.min, 10);
  EXPECT_EQ(summary.intra_node.max, 30);
  EXPECT_DOUBLE_EQ(summary.intra_node.mean, 20);
}

TEST(Summary, ScopesCountWhatTheyHold) {
  const Schedule schedule = schedule_of(small_model());
  Training training;
  const double step = 6.0 * 79'936 * 1024 + 12.0 * 2 * 64 * 270'400;
  EXPECT_DOUBLE_EQ(counted_flops(schedule.model, *schedule.batch, training).value, step);
  training.scope = Scope::kLayers;
  EXPECT_DOUBLE_EQ(counted_flops(schedule.model, *schedule.batch, training).value, step - 6.0 * 97 * 64 * 1024);
  training.scope = Scope::kAttention;
  EXPECT_DOUBLE_EQ(counted_flops(schedule.model, *schedule.batch, training).value, 12.0 * 2 * 64 * 270'400);
  training.backward = false;
  EXPECT_DOUBLE_EQ(counted_flops(schedule.model, *schedule.batch, training).value, 4.0 * 2 * 64 * 270'400);
}

// Ten steps of 1 .. 10 s plus one picosecond in all: the parts of the mean sum to the mean.
TEST(Summary, MeanOverStepsKeepsTheSum) {
  std::vector<StepSummary> steps;
  for (int i = 1; i <= 10; ++i) {
    StepSummary step;
    step.step = Time::from_ps(i * 1'000'000'000'007);
    step.split[TimePart::kCompute] = Time::from_ps(step.step.ps() / 3);
    step.split[TimePart::kBubble] = Time::from_ps(step.step.ps() / 7);
    step.split[TimePart::kImbalance] = step.step - step.split.sum();
    step.compute.gemm = Time::from_ps(step.split[TimePart::kCompute].ps() / i);  // all of it in the first step
    step.compute.attention = step.split[TimePart::kCompute] - step.compute.gemm;
    step.tokens_per_second_per_gpu = 100.0 / step.step.seconds();
    step.peak_bytes = 100 - i;
    steps.push_back(step);
  }
  const StepSummary mean = mean_of(steps);
  EXPECT_EQ(mean.step.ps(), 5'500'000'000'038);  // 55 x 1,000,000,000,007 / 10, rounded down
  EXPECT_EQ(mean.split.sum(), mean.step);
  // gemm: a third of 1,000,000,000,007 ps in each step, rounded down twice in all but the first.
  EXPECT_EQ(mean.compute.gemm.ps(), 333'333'333'335);
  EXPECT_EQ(mean.compute.attention + mean.compute.gemm + mean.compute.memory, mean.split[TimePart::kCompute]);
  EXPECT_EQ(mean.p10, steps[0].step);
  EXPECT_EQ(mean.p90, steps[8].step);
  EXPECT_EQ(mean.peak_bytes, 99);
  EXPECT_NEAR(mean.tokens_per_second_per_gpu, 1000 / 55.0, 1e-6);  // 10 x 100 tokens in 55 s
}

}  // namespace
}  // namespace longhaul
