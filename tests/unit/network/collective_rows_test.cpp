#include "sim/network/collective_rows.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/network/shipped_nccl.h"
#include "tests/unit/error_texts.h"
#include "tests/unit/network/network_fixture.h"

namespace longhaul {
namespace {

using testing::ElementsAre;

const std::string kHeader = "collective,gpu,n_gpu,n_nodes,gpus_per_node,size_bytes,fabric,harness\n";

Expected<CollectivePredictions> predict(const std::string& rows) {
  return predict_collectives(kHeader + rows, "t.csv", std::nullopt, LONGHAUL_SOURCE_ROOT);
}

// A row's time is that of the transfer that the simulator would run: same ranks, same cluster.
TEST(CollectiveRows, TimesAreThoseOfTransfers) {
  const auto table = predict(
      "all_reduce,H100-80GB,8,1,8,1048576,nvlink,\n"
      "all_gather,H200,16,2,8,268435456,infiniband,nccl-tests\n"
      "alltoall,GB300,64,16,4,1073741824,nvl72,\n"
      "sendrecv,A100,8,1,8,1000,nvlink,pytorch\n");
  ASSERT_TRUE(table) << table.error().front().to_string();
  ASSERT_EQ(table->rows.size(), 4u);
  const Cluster h100 = shipped_cluster("dgx-h100-ndr", 8);
  const Cluster h200 = shipped_cluster("dgx-h200-ndr", 16);
  const Cluster gb300 = shipped_cluster("gb300-nvl72", 64);
  const Cluster a100 = shipped_cluster("dgx-a100-hdr", 8);
  const Transfer reduce = Collectives(h100).all_reduce(rank_range(8), Bytes{1 << 20});
  const Transfer gather = Collectives(h200).all_gather(rank_range(16), Bytes{(256 << 20) / 16});
  const Transfer all = Collectives(gb300).all_to_all(rank_range(64), Bytes{(1 << 30) / 64});
  const Transfer send = Collectives(a100).send_receive(rank_range(8), Bytes{1000});
  EXPECT_DOUBLE_EQ(table->rows[0].us, reduce.alone.us());
  EXPECT_DOUBLE_EQ(table->rows[1].us, gather.alone.us());
  EXPECT_DOUBLE_EQ(table->rows[2].us, all.alone.us());
  EXPECT_DOUBLE_EQ(table->rows[3].us, send.alone.us() + shipped_nccl().pytorch_us);
  EXPECT_GT(shipped_nccl().pytorch_us, 0);
  EXPECT_EQ(table->rows[0].algorithm, "ring LL");
  EXPECT_EQ(table->rows[2].algorithm, "direct Simple");
  // size / time x factor.
  EXPECT_DOUBLE_EQ(table->rows[1].busbw_GBps, 268435456 / gather.alone.seconds() / 1e9 * 15 / 16);
}

// One thread that launches eight GPUs bounds short calls, not long ones; the transfer itself knows nothing of it.
TEST(CollectiveRows, OneLaunchingThreadBoundsShortCalls) {
  const auto table = predict(
      "all_reduce,A100,8,1,8,1024,nvlink,nccl-tests\n"
      "all_reduce,A100,8,1,8,1024,nvlink,nccl-tests -g\n"
      "all_reduce,A100,8,1,8,67108864,nvlink,nccl-tests\n"
      "all_reduce,A100,8,1,8,67108864,nvlink,nccl-tests -g\n");
  ASSERT_TRUE(table) << table.error().front().to_string();
  EXPECT_LT(table->rows[0].us, table->rows[1].us);
  EXPECT_DOUBLE_EQ(table->rows[1].us, 8 * shipped_nccl().launch_us);
  EXPECT_EQ(table->rows[2].us, table->rows[3].us);
  EXPECT_GT(table->rows[2].us, 8 * shipped_nccl().launch_us);
}

// What a benchmark adds is no part of a transfer, so no simulated step waits for it.
TEST(CollectiveRows, TransfersHoldNoCostOfTheHarness) {
  const Cluster cluster = shipped_cluster("dgx-a100-hdr", 16);
  NcclConstants slow = shipped_nccl();
  slow.pytorch_us = slow.launch_us = slow.launch_channel_us = 1e6;
  Collectives as_shipped(cluster, shipped_nccl());
  Collectives launched_slowly(cluster, slow);
  for (const int ranks : {8, 16}) {
    const std::vector<int> group = rank_range(ranks);
    for (const std::int64_t size : {1024, 1 << 20, 1 << 28}) {
      EXPECT_EQ(as_shipped.all_reduce(group, Bytes{size}).alone, launched_slowly.all_reduce(group, Bytes{size}).alone);
      EXPECT_EQ(as_shipped.all_to_all(group, Bytes{size}).alone, launched_slowly.all_to_all(group, Bytes{size}).alone);
      EXPECT_EQ(as_shipped.send_receive(group, Bytes{size}).alone,
                launched_slowly.send_receive(group, Bytes{size}).alone);
    }
  }
}

// nccl-tests, doc/PERFORMANCE.md.
TEST(CollectiveRows, BusBandwidthFactors) {
  EXPECT_DOUBLE_EQ(busbw_factor(NcclCollective::kAllReduce, 8), 1.75);
  for (const NcclCollective one :
       {NcclCollective::kAllGather, NcclCollective::kReduceScatter, NcclCollective::kAllToAll}) {
    EXPECT_DOUBLE_EQ(busbw_factor(one, 8), 0.875);
  }
  EXPECT_EQ(busbw_factor(NcclCollective::kSendRecv, 8), 1);
  EXPECT_EQ(busbw_factor(NcclCollective::kBroadcast, 8), 1);
}

// Trays of four: 32 trays are two racks of 16, 64 GPUs each; the second rack's first GPU is number 72.
TEST(CollectiveRows, RanksFillHostsAndSpreadOverDomains) {
  const Topology rack = *read_topology("gb300-nvl72", LONGHAUL_SOURCE_ROOT);
  const std::vector<int> two = nccl_tests_ranks(rack, 32, 128);
  ASSERT_EQ(two.size(), 128u);
  EXPECT_EQ(two[63], 63);
  EXPECT_EQ(two[64], 72);
  EXPECT_EQ(nccl_tests_ranks(rack, 16, 64), rank_range(64));
  const Topology dgx = *read_topology("dgx-h100-ndr", LONGHAUL_SOURCE_ROOT);
  EXPECT_THAT(nccl_tests_ranks(dgx, 2, 4), ElementsAre(0, 1, 8, 9));
  EXPECT_THAT(nccl_tests_ranks(dgx, 2, 5), ElementsAre(0, 1, 2, 8, 9));
}

TEST(CollectiveRows, FieldsPassThrough) {
  const auto table = predict_collectives(
      "# a table\r\nnote,collective,gpu,n_gpu,n_nodes,gpus_per_node,size_bytes\r\n\r\n\"a, "
      "b\",broadcast,h100,8,1,8,64\r\n",
      "t.csv", std::nullopt, LONGHAUL_SOURCE_ROOT);
  ASSERT_TRUE(table) << table.error().front().to_string();
  ASSERT_EQ(table->rows.size(), 1u);
  EXPECT_EQ(table->rows[0].fields[0], "a, b");
  EXPECT_EQ(table->columns.size(), 7u);
}

TEST(CollectiveRows, OneGpuMovesNothing) {
  const auto table = predict("all_reduce,h100,1,1,8,1024,,\n");
  ASSERT_TRUE(table) << table.error().front().to_string();
  EXPECT_EQ(table->rows[0].us, 0);
  EXPECT_EQ(table->rows[0].busbw_GBps, 0);
  EXPECT_EQ(table->rows[0].algorithm, "none");
}

// A topology that is given stands for all rows, whatever they call their GPU.
TEST(CollectiveRows, AGivenTopologyStandsForAllRows) {
  const std::optional<Topology> topology = *read_topology("a800-4x8", LONGHAUL_SOURCE_ROOT);
  const auto table = predict_collectives(kHeader + "all_reduce,whatever,8,1,8,1024,strings,\n", "t.csv", topology,
                                         LONGHAUL_SOURCE_ROOT);
  ASSERT_TRUE(table) << table.error().front().to_string();
  EXPECT_GT(table->rows[0].us, 0);
  const auto wrong =
      predict_collectives(kHeader + "all_reduce,x,4,1,4,1024,,\n", "t.csv", topology, LONGHAUL_SOURCE_ROOT);
  EXPECT_THAT(texts(wrong), ElementsAre("t.csv: line 2: gpus_per_node is 4; expected 8, as a800-4x8 has"));
  const auto large =
      predict_collectives(kHeader + "all_reduce,x,64,8,8,1024,,\n", "t.csv", topology, LONGHAUL_SOURCE_ROOT);
  EXPECT_THAT(texts(large), ElementsAre("t.csv: line 2: n_nodes is 8; expected at most 4, all that a800-4x8 has"));
}

TEST(CollectiveRows, AMissingDataFolderIsNamedWithTheRemedy) {
  const auto table =
      predict_collectives(kHeader + "all_reduce,H100,8,1,8,1024,,\n", "t.csv", std::nullopt, "/no/such/data");
  EXPECT_THAT(texts(table), ElementsAre(testing::HasSubstr("LONGHAUL_DATA")));
}

// Every fault of every row at once.
TEST(CollectiveRows, EveryFaultIsNamed) {
  const std::vector<std::string> errors =
      texts(predict("all_reduc,H100-80GB,8,1,8,1024,,\n"
                    "all_reduce,H100-80GB,8,1,8,-5,,\n"
                    "all_reduce,H100-80GB,x,1,8,1e3x,,torch\n"
                    "all_reduce,H100-80GB,32,2,8,1024,,\n"));
  const std::string all = testing::PrintToString(errors);
  EXPECT_THAT(all, testing::HasSubstr("line 2: collective is"));
  EXPECT_THAT(all, testing::HasSubstr("line 3: size_bytes is"));
  EXPECT_THAT(all, testing::HasSubstr("line 4: n_gpu is"));
  EXPECT_THAT(all, testing::HasSubstr("line 4: size_bytes is"));
  EXPECT_THAT(all, testing::HasSubstr("line 4: harness is"));
  EXPECT_THAT(all, testing::HasSubstr("line 5: n_gpu is"));
}

TEST(CollectiveRows, UnknownMachinesAreNamedWithTheNearest) {
  const std::vector<std::string> errors =
      texts(predict("all_reduce,H10,8,1,8,1024,,\nall_reduce,H100-80GB,16,2,8,1024,infinband,\n"));
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_THAT(errors[0], testing::StartsWith("t.csv: line 2/gpu: unknown GPU \"H10\"; expected one of "));
  EXPECT_THAT(errors[0], testing::HasSubstr("did you mean \"H100\"?"));
  EXPECT_THAT(errors[1], testing::HasSubstr("line 3/fabric"));
  EXPECT_THAT(errors[1], testing::HasSubstr("did you mean \"infiniband\"?"));
}

// One error a kind of machine, at its first line, however many rows have it.
TEST(CollectiveRows, AnUnknownMachineIsToldOnce) {
  std::string rows;
  for (int i = 0; i < 3; ++i) rows += "all_reduce,H100-80GB,16,2,8,1024,infinband,\nall_reduce,H10,8,1,8,1024,,\n";
  const std::vector<std::string> errors = texts(predict(rows));
  ASSERT_EQ(errors.size(), 2u) << testing::PrintToString(errors);
  EXPECT_THAT(errors[0], testing::StartsWith("t.csv: line 2/fabric"));
  EXPECT_THAT(errors[1], testing::StartsWith("t.csv: line 3/gpu"));
}

TEST(CollectiveRows, SizesAreWholeBytes) {
  EXPECT_THAT(texts(predict("all_reduce,H100,8,1,8,1.5,,\nall_reduce,H100,8,1,8,0.5,,\nall_reduce,H100,8,1,8,1e6,,\n")),
              ElementsAre("t.csv: line 2: size_bytes is 1.5; expected a whole number of bytes above 0",
                          "t.csv: line 3: size_bytes is 0.5; expected a whole number of bytes above 0"));
}

// A fabric that a table does not state is none that is unknown.
TEST(CollectiveRows, AnUnstatedFabricIsTheMakersOwn) {
  const auto table = predict(
      "all_reduce,H100,16,2,8,1048576,infiniband,\n"
      "all_reduce,H100,16,2,8,1048576,,\nall_reduce,H100,16,2,8,1048576,unstated,\n"
      "all_reduce,H100,16,2,8,1048576,nvlink+unstated,\n");
  ASSERT_TRUE(table) << table.error().front().to_string();
  for (const CollectivePrediction& row : table->rows) EXPECT_EQ(row.us, table->rows[0].us);
}

// Domain and network, joined: the network says which machine it is.
TEST(CollectiveRows, TheNetworkBetweenDomainsSaysTheMachine) {
  const auto table =
      predict("all_reduce,GB200,144,36,4,1048576,nvl72+infiniband,\nall_reduce,GB200,144,36,4,1048576,infiniband,\n");
  ASSERT_TRUE(table) << table.error().front().to_string();
  EXPECT_EQ(table->rows[0].us, table->rows[1].us);
  const std::vector<std::string> errors = texts(predict("all_reduce,GB200,144,36,4,1048576,nvl72+pigeons,\n"));
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_THAT(errors[0], testing::HasSubstr("\"nvl72+pigeons\""));
  // A domain that the GPU does not come in is not passed over.
  for (const char* fabric :
       {"nvl72+infiniband", "nvl72+unstated", "+infiniband", "nvlink+", "+", "pigeons+infiniband"}) {
    const auto h100 = texts(predict(fmt::format("all_reduce,H100,16,2,8,1024,{},\n", fabric)));
    EXPECT_THAT(h100, ElementsAre(testing::HasSubstr(fmt::format("\"{}\" between 2 nodes", fabric))));
  }
}

TEST(CollectiveRows, ColumnsAreNeeded) {
  const auto table =
      predict_collectives("collective,gpu,ngpu,size_bytes,algorithm\n", "t.csv", std::nullopt, LONGHAUL_SOURCE_ROOT);
  const std::string all = testing::PrintToString(texts(table));
  for (const char* column : {"n_gpu", "n_nodes", "gpus_per_node"}) EXPECT_THAT(all, testing::HasSubstr(column));
  const auto again = predict_collectives(kHeader.substr(0, kHeader.size() - 1) + ",algorithm\n", "t.csv", std::nullopt,
                                         LONGHAUL_SOURCE_ROOT);
  EXPECT_THAT(texts(again),
              ElementsAre("t.csv: has a column \"algorithm\"; expected no such column: it is what is added"));
}

}  // namespace
}  // namespace longhaul
