#include "sim/cluster/find_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "tests/unit/cluster/data_root.h"

namespace longhaul {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::StartsWith;

struct Row {
  MachineQuery query;
  const char* topology;
};

// Every (gpu, n_nodes, gpus_per_node, fabric) of the measured collective tables.
TEST(FindTopology, EveryMachineOfTheTables) {
  const std::vector<Row> rows = {
      {{"A100", 1, 8, "nvlink"}, "dgx-a100-hdr"},
      {{"A100", 2, 8, "infiniband"}, "dgx-a100-hdr"},
      {{"A100-SXM4-80GB", 1, 8, "nvlink"}, "dgx-a100-hdr"},
      {{"A100-40GB", 2, 8, "roce"}, "oci-b4-roce"},
      {{"A100-80GB", 2, 8, "efa"}, "aws-p4de"},
      {{"H100-80GB", 1, 8, "nvlink"}, "dgx-h100-ndr"},
      {{"H100-80GB", 2, 8, "infiniband"}, "dgx-h100-ndr"},
      {{"H100-80GB", 2, 8, "efa"}, "aws-p5"},
      {{"H100-80GB", 2, 8, "tcpx"}, "gcp-a3-high"},
      {{"H100-80GB", 2, 8, "tcpxo"}, "gcp-a3-mega"},
      {{"H100(assumed)", 12, 8, "infiniband"}, "dgx-h100-ndr"},
      {{"H200", 1, 8, "nvlink"}, "dgx-h200-ndr"},
      {{"H200", 2, 8, "infiniband"}, "dgx-h200-ndr"},
      {{"B200", 1, 8, "nvlink"}, "dgx-b200"},
      {{"GB200", 36, 4, "nvl72+unstated"}, "gb200-nvl72"},
      {{"GB300", 16, 4, "nvl72"}, "gb300-nvl72"},
      {{"GB300", 32, 4, "nvl72+unstated"}, "gb300-nvl72"},
      {{"MI355X", 4, 8, "roce"}, "mi355x-roce"},
      // BASP's testbed and DPP's, by their GPUs a node.
      {{"a100-40gb", 2, 4, "infiniband"}, "a100-40gb-2x4"},
      {{"A800", 4, std::nullopt, "InfiniBand"}, "a800-4x8"},
      // Nothing said of the fabric: the maker's own machine, on however many nodes; without one what ships first.
      {{"h200", 1, std::nullopt, ""}, "dgx-h200-ndr"},
      {{"a100", 2, 8, ""}, "dgx-a100-hdr"},
      {{"h100", 2, 8, ""}, "dgx-h100-ndr"},
      {{"h100", 64, 8, "unstated"}, "dgx-h100-ndr"},
      {{"h200", 2, 8, "Unstated"}, "dgx-h200-ndr"},
      {{"b200", 4, 8, "unstated"}, "dgx-b200"},
      {{"gb200", 36, 4, ""}, "gb200-nvl72"},
      {{"mi355x", 4, 8, ""}, "mi355x-roce"},
  };
  for (const Row& row : rows) {
    const auto found = find_topology(row.query, kRoot);
    ASSERT_TRUE(found.has_value()) << row.query.gpu << ": " << found.error()[0].to_string();
    EXPECT_EQ(*found, row.topology) << row.query.gpu << " " << row.query.fabric;
  }
}

TEST(FindTopology, NoTwoFilesStandForOneMachine) {
  std::map<std::tuple<std::string, int, std::string>, std::string> known;
  for (const std::string& name : shipped_topologies(kRoot)) {
    const Topology topology = *read_topology(name, kRoot);
    for (const std::string& fabric : topology.stands_for) {
      const auto [entry, is_new] = known.try_emplace({topology.device.name, topology.gpus_per_node, fabric}, name);
      EXPECT_TRUE(is_new) << name << " and " << entry->second << " stand for " << fabric;
    }
  }
}

TEST(FindTopology, NoAliasMeansTwoDevices) {
  std::map<std::string, std::string> known;
  for (const std::string& name : shipped_devices(kRoot)) {
    const DeviceSpec device = *read_device(name, kRoot);
    for (const std::string& alias : device.aliases) {
      const auto [entry, is_new] = known.try_emplace(alias, name);
      EXPECT_TRUE(is_new) << alias << ": " << name << " and " << entry->second;
    }
  }
}

// Over a network that no machine of the GPU has: one of its generation over that network, else the GPU's own.
TEST(FindTopology, MachinesStandInForOthers) {
  const auto found = [](const MachineQuery& query) {
    std::string note;
    const auto name = find_topology(query, kRoot, "rows.csv", "line 3", &note);
    return (name ? *name : name.error()[0].to_string()) + "; " + note;
  };
  EXPECT_EQ(found({"H100-80GB", 2, 8, "RoCE"}),
            "gcp-a3-ultra; no machine of h100 over roce ships: gcp-a3-ultra stands in");
  EXPECT_EQ(found({"A100-SXM4-80GB", 2, 8, "roce"}),
            "oci-b4-roce; no machine of a100-80gb over roce ships: oci-b4-roce stands in");
  EXPECT_EQ(found({"B200", 2, 8, "roce"}), "dgx-b200; no machine of b200 over roce ships: dgx-b200 stands in");
  EXPECT_EQ(found({"H200", 2, 8, "roce"}), "gcp-a3-ultra; ");
}

std::string error_of(const MachineQuery& query) {
  const auto found = find_topology(query, kRoot, "rows.csv", "line 3");
  return found ? "" : found.error().at(0).to_string();
}

TEST(FindTopology, Errors) {
  EXPECT_THAT(error_of({"H20", 2, 8, "efa"}),
              AllOf(StartsWith("rows.csv: line 3/gpu: unknown GPU \"H20\"; expected one of a100-40gb, A100-40GB, "),
                    EndsWith("; did you mean \"H200\"?")));
  EXPECT_EQ(error_of({"H100-80GB", 2, 4, "efa"}),
            "rows.csv: line 3/gpus_per_node: is 4: no such machine with h100; expected 8, or a topology file");
  EXPECT_EQ(error_of({"H100-80GB", 2, 8, "nvl72"}),
            "rows.csv: line 3/fabric: \"nvl72\" between 2 nodes with h100: no such machine ships; expected one of efa, "
            "nvlink, infiniband, tcpx, tcpxo, infiniband-sharp, or a topology file");
  EXPECT_EQ(error_of({"A800", 5, 8, "infiniband"}),
            "rows.csv: line 3/n_nodes: is 5; expected at most 4, all that a800-4x8 has");
  EXPECT_EQ(error_of({"A800", 5, 8, ""}), error_of({"A800", 5, 8, "infiniband"}));
  EXPECT_EQ(find_topology({"H100", 1, 8, ""}, "/no/such/data").error().at(0).to_string(),
            "<command line>: /gpu: the data folder /no/such/data is missing; expected the environment variable "
            "LONGHAUL_DATA to name the folder that holds topologies/ and workloads/");
}

}  // namespace
}  // namespace longhaul
