// The executor on the real models: what stands alone takes exactly what the models say, bytes on links are those of the
// transfers, and what shares links takes longer.
#include <gtest/gtest.h>

#include "sim/network/collective_rows.h"
#include "sim/network/collectives.h"
#include "tests/unit/executor/hand_made.h"

namespace longhaul {
namespace {

using namespace hand_made;

Cluster cluster_of(int gpus) { return *make_cluster(*read_topology("dgx-h200-ndr", LONGHAUL_SOURCE_ROOT), gpus); }

// All 16 ranks of two nodes call an all-reduce of `elements` bf16 elements `times` times.
Schedule all_reduces(std::int64_t elements, std::int16_t times) {
  Schedule schedule = make_schedule(16, {"all"});
  std::vector<std::int32_t> ranks;
  for (int rank = 0; rank < 16; ++rank) ranks.push_back(rank);
  add_group(schedule, ranks, 0);
  for (int rank = 0; rank < 16; ++rank) add_program(schedule, rank, {all_reduce("r", 0, elements)}, times);
  return schedule;
}

TEST(ExecutorOracle, IsolatedCollectivesTakeTheirTimeAlone) {
  const Cluster cluster = cluster_of(16);
  Collectives collectives(cluster);
  std::vector<int> ranks(16);
  for (int rank = 0; rank < 16; ++rank) ranks[static_cast<std::size_t>(rank)] = rank;
  for (const std::int64_t elements : {1LL, 1000LL, 100'000'000LL}) {
    const Transfer alone = collectives.all_reduce(ranks, Bytes{2 * elements});
    const std::unique_ptr<CollectiveNetwork> network = make_flow_network(cluster);
    const Totals totals = simulate(all_reduces(elements, 3), FixedDurations{}, *network);
    EXPECT_EQ(totals.step.ps(), 3 * alone.alone.ps());
    std::int64_t intra = 0;
    std::int64_t inter = 0;
    for (const RankTotals& rank : totals.ranks) {
      EXPECT_EQ(rank.exposed_communication, totals.step);
      intra += rank.sent_intra_node;
      inter += rank.sent_inter_node;
    }
    EXPECT_EQ(intra, 3 * alone.intra_node_bytes);
    EXPECT_EQ(inter, 3 * alone.inter_node_bytes);
    for (const LinkLoad& load : alone.loads) {
      EXPECT_EQ(totals.link_bytes[static_cast<std::size_t>(load.link)], 3 * load.bytes);
    }
  }
}

// `longhaul collective` and the simulator agree to the picosecond: 100,000,000 bf16 elements on two nodes of eight.
TEST(ExecutorOracle, PredictedRowsAreWhatTheSimulatorTakes) {
  const std::string rows =
      "collective,gpu,n_gpu,n_nodes,gpus_per_node,size_bytes,fabric\n"
      "all_reduce,H200,16,2,8,200000000,infiniband\nall_reduce,H200,16,2,8,2,infiniband\n";
  const auto table = predict_collectives(rows, "rows.csv", std::nullopt, LONGHAUL_SOURCE_ROOT);
  ASSERT_TRUE(table) << table.error().front().to_string();
  const Cluster cluster = cluster_of(16);
  const std::int64_t elements[] = {100'000'000, 1};
  for (std::size_t i = 0; i < 2; ++i) {
    const std::unique_ptr<CollectiveNetwork> network = make_flow_network(cluster);
    const Totals totals = simulate(all_reduces(elements[i], 1), FixedDurations{}, *network);
    EXPECT_EQ(Time::from_us(table->rows[i].us), totals.step);
  }
}

TEST(ExecutorOracle, CollectiveScaleScalesTimesAndKeepsBytes) {
  const Cluster cluster = cluster_of(16);
  const Schedule schedule = all_reduces(1'000'000, 1);
  const std::unique_ptr<CollectiveNetwork> once = make_flow_network(cluster);
  const std::unique_ptr<CollectiveNetwork> twice = make_flow_network(cluster, 2);
  const Totals a = simulate(schedule, FixedDurations{}, *once);
  const Totals b = simulate(schedule, FixedDurations{}, *twice);
  EXPECT_NEAR(static_cast<double>(b.step.ps()), 2.0 * static_cast<double>(a.step.ps()), 2);
  EXPECT_EQ(a.link_bytes, b.link_bytes);
}

TEST(ExecutorOracle, CollectivesThatShareLinksTakeLongerThanAloneAndNoLongerThanInTurn) {
  // Two communicators over the same two nodes at once (roles 0 and 1), 2 and 4 GB.
  const Cluster cluster = cluster_of(16);
  Schedule schedule = make_schedule(16, {"a", "b"});
  std::vector<std::int32_t> ranks;
  for (int rank = 0; rank < 16; ++rank) ranks.push_back(rank);
  add_group(schedule, ranks, 0);
  add_group(schedule, ranks, 1);
  for (int rank = 0; rank < 16; ++rank) {
    add_program(schedule, rank, {all_reduce("small", 0, 1'000'000'000), all_reduce("large", 1, 2'000'000'000)});
  }
  Collectives collectives(cluster);
  const Transfer small = collectives.all_reduce(ranks, Bytes{2'000'000'000});
  const Transfer large = collectives.all_reduce(ranks, Bytes{4'000'000'000});
  const std::unique_ptr<CollectiveNetwork> network = make_flow_network(cluster);
  const Totals totals = simulate(schedule, FixedDurations{}, *network);
  EXPECT_GT(totals.step, large.alone);
  EXPECT_LE(totals.step.ps(), (small.alone + large.alone).ps() + 2);
  double peak = 0;
  for (const double part : totals.link_peak_utilisation) peak = std::max(peak, part);
  EXPECT_GT(peak, 0.5);
  EXPECT_LE(peak, 1 + 1e-9);
}

// On two nodes of eight: 8 MiB to one peer inside a node (4 of 32 channels, shared by 8), from GPU 0 to its like in the
// other node (NICs of 50 GB/s ask for 4), and to all 15 others (32, all that there are).
TEST(ExecutorOracle, ChannelsOfAnExchangeFollowFromItsGroup) {
  const Cluster cluster = cluster_of(16);
  Schedule schedule = make_schedule(16, {"node", "pair", "all"});
  std::vector<std::int32_t> ranks;
  for (int rank = 0; rank < 16; ++rank) ranks.push_back(rank);
  const GroupId node = add_group(schedule, {0, 1, 2, 3, 4, 5, 6, 7}, 0);
  const GroupId pair = add_group(schedule, {0, 8}, 1);
  const GroupId all = add_group(schedule, ranks, 2);
  const std::unique_ptr<CollectiveNetwork> network = make_flow_network(cluster);
  constexpr std::int64_t kBytes = 8 << 20;
  EXPECT_EQ(network->exchange_channels(schedule, node, {kBytes, 1, kBytes, 1}).moving, 4);
  EXPECT_EQ(network->exchange_channels(schedule, pair, {kBytes, 1, kBytes, 1}).moving, 4);
  EXPECT_EQ(network->exchange_channels(schedule, all, {kBytes, 15, 15 * kBytes, 15}).waiting, 32);
  EXPECT_EQ(network->exchange_channels(schedule, all, {kBytes, 15, 15 * kBytes, 15}).moving, 32);
  EXPECT_EQ(network->exchange_channels(schedule, all, {kBytes, 15, 5 * kBytes, 15}).waiting, 32);
  EXPECT_EQ(network->exchange_channels(schedule, all, {kBytes, 15, 5 * kBytes, 15}).moving, 11);  // a third
  EXPECT_EQ(network->exchange_channels(schedule, all, {0, 0, 0, 0}).waiting, 0);
}

// Rank 0 receives 64 MB each from two ranks of another node, the second of which comes 1 s later: what the first sent
// has passed, and is counted on its links all the same.
TEST(ExecutorOracle, WhatPassedBeforeTheLastMemberCameIsCounted) {
  const Cluster cluster = cluster_of(16);
  Schedule schedule = make_schedule(16, {"three"});
  const GroupId group = add_group(schedule, {0, 8, 9}, 0);
  constexpr std::int64_t kElements = 32'000'000;
  const RowListPtr rows = make_row_list({{0, 1}});
  const auto receive = [&](std::int32_t from) { return PeerExchange{from, nullptr, 0, 0, rows, 0, kElements}; };
  ShapeSet receiver, sender;
  receiver.exchanges = {std::make_shared<ExchangeList>(ExchangeList{receive(1), receive(2)})};
  sender.exchanges = {std::make_shared<ExchangeList>(ExchangeList{{0, rows, 0, kElements, nullptr, 0, 0}})};
  Op op = all_reduce("exchange", 0, kElements);
  op.collective = CollectiveKind::kExchange;
  op.parts[0].send = flat_view(step_tensor(kBufferKind), kElements, Access::kRead);
  op.parts[0].receive = flat_view(step_tensor(kBufferKind), kElements, Access::kWrite);
  op.parts[0].exchange = 0;
  std::vector<OpInstance> members(3);
  const std::int32_t ranks[] = {0, 8, 9};
  for (std::size_t i = 0; i < 3; ++i) {
    members[i].rank = ranks[i];
    members[i].op = &op;
    members[i].shape = i == 0 ? &receiver : &sender;
  }
  CollectiveCall call;
  call.schedule = &schedule;
  call.group = group;
  call.members = members;
  const auto run = [&](const std::vector<Time>& arrivals) {
    const std::unique_ptr<CollectiveNetwork> network = make_flow_network(cluster);
    const CollectiveNetwork::TransferId transfer = network->prepare(call);
    const Time now = arrivals.back();
    network->start_exchange(now, transfer, 0, arrivals);
    std::vector<std::uint32_t> finished;
    Time end = now;
    while (finished.empty()) network->advance(end = network->next(), finished);
    return std::pair(end - now, network->link_bytes());
  };
  const Time second = Time::from_seconds(1);
  const auto together = run({second, second, second});
  const auto late = run({Time::zero(), Time::zero(), second});
  EXPECT_LT(late.first, together.first);
  EXPECT_EQ(late.second, together.second);
  Collectives collectives(cluster);
  const std::vector<PeerMessage> of_last = {{8, 0, Bytes{0}}, {9, 0, Bytes{2 * kElements}}};
  EXPECT_EQ(late.first, collectives.exchange(of_last).alone);
}

TEST(ExecutorOracle, KernelsTakeWhatTheModelSays) {
  const Cluster cluster = cluster_of(1);
  const Expected<KernelModel> model = load_kernel_model(cluster.device(), LONGHAUL_SOURCE_ROOT);
  ASSERT_TRUE(model.has_value());
  // One elementwise op over 2 x 10^8 bytes, after one launch.
  Schedule schedule = make_schedule(1, {});
  Op op = kernel("zero");
  op.operands = {flat_view(step_tensor(kBufferKind), 100'000'000, Access::kWrite)};
  add_program(schedule, 0, {op});
  const Time launch = Time::from_seconds(model->launch_seconds());
  const double seconds = model->elementwise(Bytes{200'000'000}).seconds;
  EXPECT_EQ(simulate(schedule, cluster, *model).step, launch + Time::from_seconds(seconds));
  SimulationOptions options;
  options.kernel_scale = 3;
  EXPECT_EQ(simulate(schedule, cluster, *model, options).step, launch + Time::from_seconds(seconds * 3));
}

}  // namespace
}  // namespace longhaul
