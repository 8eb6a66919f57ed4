// Every error text of the topology, device and cluster readers.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "sim/cluster/cluster.h"
#include "sim/core/json.h"
#include "tests/unit/cluster/data_root.h"
#include "tests/unit/error_texts.h"

namespace longhaul {
namespace {

using testing::EndsWith;
using testing::StartsWith;

std::vector<std::string> errors_of(const char* text) {
  return texts(parse_topology(*parse_json(text, "s.json"), "s.json", "/topology", kRoot));
}

const std::string kDevices = fmt::format("{}", fmt::join(shipped_devices(kRoot), ", "));

TEST(TopologyErrors, UnknownName) {
  const Lines lines = errors_of(R"("dgx-h20-ndr")");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0],
              StartsWith("s.json: /topology: unknown topology \"dgx-h20-ndr\"; expected one of a100-40gb-2x4, "
                         "a800-4x8, "));
  EXPECT_THAT(lines[0], EndsWith(", or a path; did you mean \"dgx-h200-ndr\"?"));
}

TEST(TopologyErrors, NoSuchFile) {
  EXPECT_EQ(errors_of(R"("no/such.json")"), Lines{"no/such.json: cannot be read; expected a JSON file"});
}

// An empty list of names would say nothing: the folder itself is what is missing.
TEST(TopologyErrors, NoDataFolder) {
  const std::string remedy =
      "the data folder /no/such/data is missing; expected the environment variable LONGHAUL_DATA to name the folder "
      "that holds topologies/ and workloads/";
  EXPECT_EQ(texts(parse_topology(Json("dgx-h200-ndr"), "s.json", "/topology", "/no/such/data")),
            Lines{"s.json: /topology: " + remedy});
  EXPECT_EQ(texts(parse_topology(*parse_json(R"({"base": "dgx-h200-ndr"})", "s.json"), "s.json", "/topology",
                                 "/no/such/data")),
            Lines{"s.json: /topology/base: " + remedy});
  EXPECT_EQ(texts(read_device("h200", "/no/such/data")), Lines{"h200: " + remedy});
}

TEST(TopologyErrors, WrongType) {
  EXPECT_EQ(errors_of("7"), Lines{"s.json: /topology: is 7; expected a topology name, a path, or an object"});
  EXPECT_EQ(errors_of(R"({"base": 7})"), Lines{"s.json: /topology/base: is 7; expected a topology name or path"});
}

TEST(TopologyErrors, UnknownBase) {
  const Lines lines = errors_of(R"({"base": "a800-4x9"})");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], StartsWith("s.json: /topology/base: unknown topology \"a800-4x9\"; expected one of "));
  EXPECT_THAT(lines[0], EndsWith("did you mean \"a800-4x8\"?"));
}

TEST(TopologyErrors, AllAtOnceInAPatchedTopology) {
  EXPECT_EQ(
      errors_of(R"({"base": "dgx-h200-ndr", "device": "h20", "gpus_per_node": 8, "nodes": -1, "scale_nvlnk": 2,
                         "scale_network": 0, "nvlink": {"gbytes_per_s": 0, "efficiency": 1.2, "latency_us": -1},
                         "network": {"nics_per_node": 3, "fabric": "rail", "nic_gbits_per_s": "8"}})"),
      (Lines{
          "s.json: /topology/device: unknown device \"h20\"; expected one of " + kDevices +
              ", or a path; did you mean "
              "\"h200\"?",
          "s.json: /topology/nodes: is -1; expected an integer from 1 to 1048576",
          "s.json: /topology/nvlink/gbytes_per_s: is 0; expected a number from 0.001 to 100000",
          "s.json: /topology/nvlink/efficiency: is 1.2; expected a number from 0.01 to 1",
          "s.json: /topology/nvlink/latency_us: is -1; expected a number from 0 to 10000",
          "s.json: /topology/network/fabric: is \"rail\"; expected one of rails, fat-tree, single-switch; did you mean "
          "\"rails\"?",
          "s.json: /topology/network/nic_gbits_per_s: is \"8\"; expected a number from 0.001 to 100000",
          "s.json: /topology/network/nics_per_node: is 3; expected a divisor or a multiple of gpus_per_node, 8",
          "s.json: /topology/scale_network: is 0; expected a number from 0.001 to 1000",
          "s.json: /topology/scale_nvlnk: unknown key; did you mean \"scale_nvlink\"?",
      }));
}

// Hops over the network are constants of NCCL (nccl.json); files that still give them are told which keys there are.
TEST(TopologyErrors, HopsOfNcclAreNoKeys) {
  const Lines lines =
      errors_of(R"({"base": "dgx-h200-ndr", "network": {"nccl_ll_hop_us": 5, "nccl_simple_hop_us": 3}})");
  ASSERT_EQ(lines.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string key = i == 0 ? "nccl_ll_hop_us" : "nccl_simple_hop_us";
    EXPECT_THAT(lines[i], StartsWith("s.json: /topology/network/" + key + ": unknown key; expected one of fabric, "));
    EXPECT_THAT(lines[i], testing::HasSubstr(", latency_us, "));
  }
}

TEST(TopologyErrors, MissingParts) {
  EXPECT_EQ(errors_of(R"({"schema": "topology/2"})"),
            (Lines{
                "s.json: /topology/schema: is \"topology/2\"; expected one of topology/1; did you mean \"topology/1\"?",
                "s.json: /topology/name: is missing; expected a string",
                "s.json: /topology/device: is missing; expected a device name, a path or an object",
                "s.json: /topology/gpus_per_node: is missing; expected an integer from 1 to 256",
                "s.json: /topology/nvlink: is missing; expected an object",
                "s.json: /topology/network: is missing; expected an object",
            }));
}

TEST(TopologyErrors, RailKeysOnASingleSwitch) {
  const std::string only = " has no meaning here; expected only with \"fabric\": \"rails\" or \"fat-tree\"";
  const std::string network = "s.json: /topology/network/";
  EXPECT_EQ(errors_of(R"({"base": "a800-4x8", "network": {"nodes_per_leaf": 4, "oversubscription": 2, "spines": 2,
                         "spine_radix": 64, "spine_latency_us": 1}})"),
            (Lines{network + "nodes_per_leaf:" + only, network + "oversubscription:" + only,
                   network + "spine_latency_us:" + only, network + "spine_radix:" + only, network + "spines:" + only}));
}

TEST(TopologyErrors, InlineDevice) {
  EXPECT_EQ(errors_of(R"({"base": "a800-4x8", "device": {"schema": "device/1", "name": "x", "generation": "volta",
                         "memory_bytes": 1048576, "reserved_bytes": 1048576, "bf16_dense_tflops": -1,
                         "memory_bandwidth_gbytes_per_s": 1, "multiprocessors": 1.5, "host_link_gbytes_per_s": 1}})"),
            (Lines{
                "s.json: /topology/device/generation: is \"volta\"; expected one of ampere, hopper, blackwell, cdna4",
                "s.json: /topology/device/bf16_dense_tflops: is -1; expected a number from 0.001 to 1000000",
                "s.json: /topology/device/multiprocessors: is 1.5; expected an integer from 1 to 100000",
                "s.json: /topology/device/reserved_bytes: is 1048576; expected less than memory_bytes, 1048576",
            }));
}

TEST(TopologyErrors, DeviceOfAWrongType) {
  EXPECT_EQ(errors_of(R"({"base": "a800-4x8", "device": 3})"),
            Lines{"s.json: /topology/device: is 3; expected a device name, a path or an object"});
}

TEST(TopologyErrors, AFaultInTheFileOfTheBaseIsNamedThere) {
  const std::string file = testing::TempDir() + "/longhaul_base.json";
  std::ofstream(file) << R"({"schema": "topology/1", "name": "x", "device": "h200", "gpus_per_node": 8})";
  EXPECT_EQ(
      texts(parse_topology(*parse_json("{\"base\": \"" + file + "\"}", "s.json"), "s.json", "/topology", kRoot)),
      (Lines{file + ": /nvlink: is missing; expected an object", file + ": /network: is missing; expected an object"}));
  std::filesystem::remove(file);
}

TEST(DeviceErrors, UnknownName) {
  EXPECT_EQ(texts(read_device("a100", kRoot)), Lines{"a100: unknown device \"a100\"; expected one of " + kDevices +
                                                     ", or a path; did you mean "
                                                     "\"a100-40gb\"?"});
}

TEST(TopologyErrors, PodsAndPorts) {
  const std::string network = "s.json: /topology/network/";
  EXPECT_EQ(
      errors_of(R"({"base": "dgx-a100-hdr", "network": {"spine_oversubscription": 2, "core_latency_us": 1}})"),
      (Lines{network + "spine_oversubscription: has no meaning here; expected only with \"leaves_per_pod\", in a "
                       "tree of three levels",
             network + "core_latency_us: has no meaning here; expected only with \"leaves_per_pod\", in a tree of "
                       "three levels"}));
  // 20 NICs a leaf need 20 ports down and 20 up.
  EXPECT_EQ(
      errors_of(R"({"base": "dgx-a100-hdr", "network": {"leaf_radix": 36, "spines": 21}})"),
      (Lines{network + "spines: is 21; expected at most 20, the uplinks of a leaf at the rate of a NIC",
             network + "nodes_per_leaf: is 20: 20 ports down and 20 up; expected at most leaf_radix, 36, together: "
                       "fewer nodes, or more oversubscription"}));
  EXPECT_EQ(errors_of(R"({"base": "dgx-a100-hdr", "network": {"leaf_radix": 40}})"), Lines{});
  // A leaf of a fat tree has all NICs of its nodes below: 2 x 8, and half as many up.
  EXPECT_EQ(
      errors_of(R"({"base": "dgx-a100-hdr", "network": {"fabric": "fat-tree", "nodes_per_leaf": 2,
                          "oversubscription": 2, "leaf_radix": 23}})"),
      Lines{network + "nodes_per_leaf: is 2: 16 ports down and 8 up; expected at most leaf_radix, 23, together: fewer "
                      "nodes, or more oversubscription"});
  // Two leaves of each of 8 rails with 4 uplinks to 4 spines: 16 ports down, and 16 up.
  EXPECT_EQ(
      errors_of(R"({"base": "dgx-a100-hdr", "network": {"nodes_per_leaf": 4, "leaves_per_pod": 2,
                          "spine_radix": 31}})"),
      Lines{network + "leaves_per_pod: is 2: 16 ports down and 16 up; expected at most spine_radix, 31, together: "
                      "fewer leaves, more spines, or more oversubscription"});
}

TEST(TopologyErrors, DomainsAndMulticast) {
  EXPECT_EQ(errors_of(R"({"base": "dgx-h200-ndr", "nvlink": {"gpus_per_domain": 12}})"),
            Lines{"s.json: /topology/nvlink/gpus_per_domain: is 12; expected a multiple of gpus_per_node, 8"});
  EXPECT_EQ(
      errors_of(R"({"base": "a100-40gb-2x4", "nvlink": {"gpus_per_domain": 8, "nvls": true},
                          "network": {"technology": "roce", "sharp": true}})"),
      (Lines{"s.json: /topology/nvlink/nvls: is true; expected only with an NVSwitch and GPUs from Hopper on",
             "s.json: /topology/nvlink/gpus_per_domain: is 8; expected gpus_per_node: direct links join no GPUs of "
             "other nodes",
             "s.json: /topology/network/sharp: is true; expected only with \"technology\": \"infiniband\""}));
  EXPECT_EQ(errors_of(R"({"base": "dgx-h200-ndr", "nvlink": {"second_level": {"gbytes_per_s": 1000}}})"),
            (Lines{"s.json: /topology/nvlink/second_level/latency_us: is missing; expected a number from 0 to 10000",
                   "s.json: /topology/nvlink/second_level: has no meaning here; expected only with a "
                   "\"gpus_per_domain\" of several nodes"}));
  EXPECT_EQ(
      errors_of(R"({"base": "dgx-h200-ndr", "stands_for": [1], "network": {"technology": "infinband",
                          "routing": "random"}})"),
      (Lines{"s.json: /topology/network/technology: is \"infinband\"; expected one of infiniband, roce, efa, tcpx, "
             "tcpxo, ethernet; did you mean \"infiniband\"?",
             "s.json: /topology/network/routing: is \"random\"; expected one of spread, hash",
             "s.json: /topology/stands_for: is a list of 1; expected a list of fabrics' names"}));
}

// Two levels: 8 rails of leaves on spines of 64 ports leave 8 leaves a rail.
TEST(ClusterErrors, PortsOfTheSpine) {
  const Topology topology = *parse_topology(
      *parse_json(R"({"base": "dgx-a100-hdr", "network": {"nodes_per_leaf": 4, "spine_radix": 64}})", "s.json"),
      "s.json", "/topology", kRoot);
  EXPECT_TRUE(make_cluster(topology, 8 * 4 * 8).has_value());
  EXPECT_EQ(texts(make_cluster(topology, 8 * 4 * 8 + 8, "s.json", "/gpus")),
            Lines{"s.json: /gpus: is 264; expected at most 256 GPUs: the switches of dgx-a100-hdr have no more ports "
                  "(leaf_radix, spine_radix); or pods, larger switches, more spines"});
  Topology one_switch = *read_topology("a800-4x8", kRoot);
  one_switch.leaf_radix = 2;
  EXPECT_TRUE(make_cluster(one_switch, 16).has_value());
  EXPECT_EQ(texts(make_cluster(one_switch, 24)).size(), 1u);
}

// A base may have a base; a path is seen from the file that names it.
TEST(Overrides, BasesOfBases) {
  const std::string folder = testing::TempDir() + "longhaul_bases";
  std::filesystem::create_directories(folder + "/deep");
  std::ofstream(folder + "/a.json") << R"({"base": "dgx-h200-ndr", "name": "a", "nodes": 4})";
  std::ofstream(folder + "/deep/b.json") << R"({"base": "../a.json", "scale_network": 2})";
  std::ofstream(folder + "/deep/c.json") << R"({"base": "./c.json"})";
  const auto topology = read_topology(folder + "/deep/b.json", kRoot);
  ASSERT_TRUE(topology.has_value()) << topology.error()[0].to_string();
  EXPECT_EQ(topology->name, "a");
  EXPECT_EQ(topology->nodes, 4);
  EXPECT_DOUBLE_EQ(topology->nic.rated.value, 100e9);
  EXPECT_EQ(texts(read_topology(folder + "/deep/c.json", kRoot)),
            Lines{folder + "/deep/c.json: /base: has a base, and so on; expected at most 8 bases in a row"});
  std::filesystem::remove_all(folder);
}

// A what-if that names nothing is told where it is written, also in the file of a base.
TEST(Overrides, WhatIfsKeepTheirPlace) {
  const std::string folder = testing::TempDir() + "longhaul_places";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/a.json") << R"({"base": "dgx-h200-ndr", "what_if": [{"rail": 9, "down": true}]})";
  std::ofstream(folder + "/b.json") << R"({"base": "./a.json", "nodes": 4})";
  const auto places = [&](const std::string& more) {
    const Json json = *parse_json(R"({"base": ")" + folder + R"(/b.json")" + more + "}", "s.json");
    const auto topology = parse_topology(json, "s.json", "/topology", kRoot);
    const auto cluster = make_cluster(*topology, 16);
    Lines lines;
    for (const InputError& error : cluster.error()) {
      lines.push_back(std::filesystem::path(error.file).filename().string() + " " + error.path);
    }
    return lines;
  };
  EXPECT_EQ(places(""), Lines{"a.json /what_if/0/rail"});
  EXPECT_EQ(places(R"(, "what_if": [{"rail": 0, "scale_latency": 2}, {"rail": 8, "down": true}])"),
            Lines{"s.json /topology/what_if/1/rail"});
  std::filesystem::remove_all(folder);
}

TEST(ClusterErrors, GpuCounts) {
  const Topology dgx = *read_topology("dgx-h200-ndr", kRoot);
  const Topology testbed = *read_topology("a800-4x8", kRoot);
  EXPECT_EQ(texts(make_cluster(dgx, 0, "s.json", "/gpus")), Lines{"s.json: /gpus: is 0; expected at least 1 GPU"});
  EXPECT_EQ(
      texts(make_cluster(dgx, 20, "s.json", "/gpus")),
      Lines{"s.json: /gpus: is 20; expected at most 8 GPUs, or a multiple of the 8 of a node of dgx-h200-ndr: 16 or "
            "24"});
  EXPECT_EQ(texts(make_cluster(testbed, 36, "s.json", "/gpus")),
            Lines{"s.json: /gpus: is 36; expected at most 32 GPUs, all that a800-4x8 has"});
  EXPECT_EQ(texts(make_cluster(dgx, 1 << 21)),
            Lines{"<command line>: /gpus: is 2097152; expected at most 1048576 GPUs"});
  EXPECT_TRUE(make_cluster(dgx, 5).has_value());
  EXPECT_TRUE(make_cluster(testbed, 32).has_value());
}

TEST(Overrides, ScaleAndPatch) {
  const Topology topology =
      *parse_topology(*parse_json(R"({"base": "dgx-h200-ndr", "scale_nvlink": 0.5, "scale_network": 2, "nodes": 4,
                      "network": {"efficiency": 1}})",
                                  "s.json"),
                      "s.json", "/topology", kRoot);
  EXPECT_DOUBLE_EQ(topology.nvlink.rated.value, 225e9);
  EXPECT_DOUBLE_EQ(topology.nic.effective().value, 100e9);
  EXPECT_EQ(topology.nodes, 4);
  EXPECT_EQ(topology.device.name, "h200");
}

}  // namespace
}  // namespace longhaul
