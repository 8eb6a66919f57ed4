// Every shipped topology and device: valid against its JSON Schema, readable, with a source for every value.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "sim/cluster/cluster.h"
#include "tests/unit/cluster/data_root.h"
#include "tests/unit/json_schema/schema_errors.h"

namespace longhaul {
namespace {

nlohmann::json load(const std::string& file) {
  std::ifstream stream(kRoot + "/topologies/" + file);
  return nlohmann::json::parse(stream);
}

// Keys of an object and of the objects in it that have no entry in the "sources" beside them.
std::string without_source(const nlohmann::json& object, const std::string& path) {
  std::string missing;
  for (const auto& [key, value] : object.items()) {
    if (key == "schema" || key == "name" || key == "description" || key == "sources") continue;
    if (value.is_object()) {
      missing += without_source(value, path + "/" + key);
    } else if (!object.contains("sources") || object["sources"].value(key, "").empty()) {
      missing += path + "/" + key + "\n";
    }
  }
  return missing;
}

TEST(ShippedTopologies, AreTheOnesPromised) {
  EXPECT_EQ(shipped_topologies(kRoot),
            (std::vector<std::string>{
                "a100-40gb-2x4",      "a800-4x8",         "aws-p4de",     "aws-p5",      "aws-p5en",     "aws-p6-b200",
                "azure-nd-a100-v4",   "azure-nd-h100-v5", "dgx-a100-hdr", "dgx-b200",    "dgx-h100-ndr", "dgx-h200-ndr",
                "gb200-nvl72",        "gb300-nvl72",      "gcp-a3-high",  "gcp-a3-mega", "gcp-a3-ultra", "hgx-h100-ndr",
                "hgx-h100-ndr-sharp", "mi355x-roce",      "oci-b4-roce"}));
}

TEST(ShippedTopologies, AreValid) {
  const nlohmann::json schema = load("topology.schema.json");
  for (const std::string& name : shipped_topologies(kRoot)) {
    const nlohmann::json value = load(name + ".json");
    EXPECT_EQ(schema_errors(schema, value), "") << name;
    EXPECT_EQ(without_source(value, ""), "") << name;
    EXPECT_EQ(value["name"], name);
    const Expected<Topology> topology = read_topology(name, kRoot);
    ASSERT_TRUE(topology.has_value()) << topology.error()[0].to_string();
    EXPECT_EQ(topology->name, name);
  }
}

TEST(ShippedDevices, AreValid) {
  const nlohmann::json schema = load("device.schema.json");
  const std::vector<std::string> names = shipped_devices(kRoot);
  EXPECT_EQ(names, (std::vector<std::string>{"a100-40gb", "a100-80gb", "a800", "b200", "gb200", "gb300", "h100", "h200",
                                             "h800", "mi355x"}));
  for (const std::string& name : names) {
    const nlohmann::json value = load("devices/" + name + ".json");
    EXPECT_EQ(schema_errors(schema, value), "") << name;
    EXPECT_EQ(without_source(value, ""), "") << name;
    EXPECT_EQ(value["name"], name);
    EXPECT_TRUE(read_device(name, kRoot).has_value()) << name;
  }
}

TEST(Schemas, RefuseWhatTheReaderRefuses) {
  const nlohmann::json schema = load("topology.schema.json");
  const nlohmann::json good = load("dgx-h200-ndr.json");
  for (const char* patch :
       {R"({"nvlnk": 1})", R"({"gpus_per_node": 0})", R"({"network": {"nic_gbits_per_s": 0}})",
        R"({"nvlink": {"efficiency": 1.5}})", R"({"network": {"fabric": "ring"}})", R"({"nodes": "four"})",
        R"({"device": null})", R"({"scale_nvlink": 0.0005})", R"({"nvlink": {"efficiency": 0.005}})",
        R"({"network": {"nic_gbits_per_s": 0.0005}})", R"({"what_if": [{"links": "", "down": true}]})"}) {
    nlohmann::json bad = good;
    bad.merge_patch(nlohmann::json::parse(patch));
    EXPECT_NE(schema_errors(schema, bad), "") << patch;
    EXPECT_FALSE(parse_topology(nlohmann::ordered_json(bad), "f.json", "", kRoot).has_value()) << patch;
  }
}

TEST(H200, Figures) {
  const Topology topology = *read_topology("dgx-h200-ndr", kRoot);
  EXPECT_EQ(topology.device.name, "h200");
  EXPECT_EQ(topology.device.memory.value, 150'109'880'320);
  EXPECT_EQ(topology.device.usable().value, 150'109'880'320 - 2'147'483'648);
  EXPECT_EQ(topology.device.bf16_dense.value, 989.4e12);
  EXPECT_EQ(topology.device.multiprocessors, 132);
  EXPECT_EQ(topology.device.generation, GpuGeneration::kHopper);
  EXPECT_DOUBLE_EQ(topology.nvlink.effective().value, 370.8e9);
  EXPECT_DOUBLE_EQ(topology.nic.effective().value, 48e9);
  EXPECT_FALSE(topology.nodes.has_value());
}

}  // namespace
}  // namespace longhaul
