// The constants file, rows of tables and machines: what is read, and every error text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/core/data_files.h"
#include "sim/core/json.h"
#include "sim/network/nccl/rows.h"
#include "tests/unit/error_texts.h"
#include "tests/unit/json_schema/schema_errors.h"

namespace longhaul {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Json shipped() {
  const Expected<Json> json = read_json_file(data_directory() + "/topologies/nccl.json");
  EXPECT_TRUE(json);
  return *json;
}

std::vector<std::string> faults(const Json& json) {
  const Expected<NcclConstants> read = parse_nccl_constants(json, "n.json", "");
  return read ? std::vector<std::string>() : texts(read.error());
}

bool valid(const Json& json) {
  const Expected<Json> schema_json = read_json_file(data_directory() + "/topologies/nccl.schema.json");
  EXPECT_TRUE(schema_json);
  return obeys(nlohmann::json::parse(schema_json->dump()), nlohmann::json::parse(json.dump()));
}

TEST(NcclConstantsFile, TheShippedOneIsReadAndFitsItsSchema) {
  EXPECT_THAT(faults(shipped()), ElementsAre());
  EXPECT_TRUE(valid(shipped()));
  const Expected<NcclConstants> read = read_nccl_constants(data_directory() + "/topologies/nccl.json");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->of(NcclGpu::kHopper, GpuTerm::kLlStep), shipped()["gpus"]["hopper"]["ll_step_us"].get<double>());
  EXPECT_EQ(read->of(NcclNetwork::kTcpxo, NetworkTerm::kSimpleHop),
            shipped()["networks"]["tcpxo"]["simple_hop_us"].get<double>());
}

TEST(NcclConstantsFile, AllFaultsAreNamedAtOnce) {
  Json json = shipped();
  json["schema"] = "nccl/2";
  json["gpus"]["hopper"].erase("ll_step_us");
  json["gpus"]["ampere"]["ll_stepp_us"] = 1;
  json["networks"]["roce"]["ll_hop_us"] = -1;
  json["networks"].erase("tcpx");
  json["harness"].erase("launch_us");
  json["harness"]["launch_channel_us"] = -1;
  EXPECT_FALSE(valid(json));
  const std::vector<std::string> found = faults(json);
  EXPECT_EQ(found.size(), 7U);
  const std::string all = testing::PrintToString(found);
  EXPECT_THAT(all, HasSubstr("/schema"));
  EXPECT_THAT(all, HasSubstr("/gpus/hopper"));
  EXPECT_THAT(all, HasSubstr("ll_step_us"));
  EXPECT_THAT(all, HasSubstr("/networks/roce/ll_hop_us"));
  EXPECT_THAT(all, HasSubstr("/networks"));
  EXPECT_THAT(all, HasSubstr("ll_stepp_us"));
  EXPECT_THAT(all, HasSubstr("launch_us"));
  EXPECT_THAT(all, HasSubstr("/harness/launch_channel_us"));
}

TEST(NcclConstantsFile, AFileThatIsNotThere) {
  const Expected<NcclConstants> read = read_nccl_constants("/nowhere/nccl.json");
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().front().to_string(), HasSubstr("/nowhere/nccl.json"));
}

constexpr const char* kHeader =
    "collective,gpu,n_gpu,n_nodes,gpus_per_node,size_bytes,oop_time_us,ip_time_us,fabric,nccl_version,harness,"
    "settings\n";

std::vector<std::string> row_faults(const std::string& lines) {
  const auto rows = parse_collective_rows(kHeader + lines, "t.csv");
  return rows ? std::vector<std::string>() : texts(rows.error());
}

TEST(CollectiveRows, ReadsEveryColumn) {
  const auto rows = parse_collective_rows(
      std::string(kHeader) +
          "alltoall,H100-80GB,8,1,8,1048576,15.5,14.5,nvlink,2.29.2,nccl-tests,\n"
          "all_reduce,H200,16,2,8,4096,,33,infiniband,,pytorch,NCCL_ALGO=NVLSTree NCCL_NVLS_ENABLE=0\n",
      "t.csv");
  ASSERT_TRUE(rows);
  EXPECT_EQ((*rows)[0].collective, NcclCollective::kAllToAll);
  EXPECT_EQ((*rows)[0].version, 22902);
  EXPECT_EQ((*rows)[0].measured_us, 15.5);  // out of place first
  EXPECT_EQ((*rows)[1].measured_us, 33);
  EXPECT_EQ((*rows)[1].version, kNcclVersion);
  EXPECT_EQ((*rows)[1].harness, Harness::kPyTorch);
  EXPECT_EQ((*rows)[1].forced, NcclAlgorithm::kNvlsTree);
  EXPECT_TRUE((*rows)[1].nvls_off);
}

TEST(CollectiveRows, HarnessesSayWhoLaunches) {
  for (const auto& [name, meant] :
       std::vector<std::pair<std::string, Harness>>{{"", Harness::kNcclTests},
                                                    {"nccl-tests", Harness::kNcclTests},
                                                    {"rccl-tests", Harness::kNcclTests},
                                                    {"nccl-tests -g", Harness::kNcclTestsOneThread},
                                                    {"RCCL-tests -g", Harness::kNcclTestsOneThread},
                                                    {"pytorch", Harness::kPyTorch}}) {
    const auto rows = parse_collective_rows(
        std::string(kHeader) + "all_reduce,H100-80GB,8,1,8,1024,1,,nvlink,," + name + ",\n", "t.csv");
    ASSERT_TRUE(rows) << name;
    EXPECT_EQ(rows->front().harness, meant) << name;
  }
  const std::vector<std::string> found = row_faults("all_reduce,H100-80GB,8,1,8,1024,1,,nvlink,,nccl-test -g,\n");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.front(),
            "t.csv: line 2: harness is \"nccl-test -g\"; expected one of nccl-tests, rccl-tests, nccl-tests -g, "
            "rccl-tests -g, pytorch; did you mean \"nccl-tests -g\"?");
}

// GPUs of a host are launched by its own thread: 16 on two hosts are eight each.
TEST(CollectiveRows, LaunchesAreCountedByHost) {
  NcclConstants constants;
  constants.launch_us = 5;
  CollectiveRow row;
  row.harness = Harness::kNcclTestsOneThread;
  row.ranks = 16;
  row.nodes = 2;
  EXPECT_EQ(harness_us(constants, row, 24, 10), 30);
  row.ranks = 9;
  EXPECT_EQ(harness_us(constants, row, 24, 10), 15);
}

TEST(CollectiveRows, MissingColumnsAreAllNamed) {
  const auto rows = parse_collective_rows("collective,gpus,n_gpu,n_nodes,size\nall_reduce,H100,8,1,1024\n", "t.csv");
  ASSERT_FALSE(rows);
  const std::string all = testing::PrintToString(texts(rows.error()));
  EXPECT_EQ(rows.error().size(), 3U);
  EXPECT_THAT(all, HasSubstr("has no column \\\"gpu\\\""));
  EXPECT_THAT(all, HasSubstr("has no column \\\"gpus_per_node\\\""));
  EXPECT_THAT(all, HasSubstr("has no column \\\"size_bytes\\\""));
}

TEST(CollectiveRows, EveryFaultOfEveryRowIsNamed) {
  const std::vector<std::string> found = row_faults(
      "all_redude,H100-80GB,8,1,8,1024,,,,,,\n"
      "all_reduce,,8,1,8,-5,,,,,,\n"
      "all_reduce,H100-80GB,zero,1,8,1024,-3,,,,,\n"
      "all_reduce,H100-80GB,64,2,8,nan,,,,two,gloo,FAST=1\n");
  const std::string all = testing::PrintToString(found);
  EXPECT_EQ(found.size(), 10U) << all;
  EXPECT_THAT(all, HasSubstr("line 2: collective is \\\"all_redude\\\""));
  EXPECT_THAT(all, HasSubstr("did you mean \\\"all_reduce\\\""));
  EXPECT_THAT(all, HasSubstr("line 3: gpu is \\\"\\\""));
  EXPECT_THAT(all, HasSubstr("line 3: size_bytes is \\\"-5\\\"; expected a number of bytes above 0"));
  EXPECT_THAT(all, HasSubstr("line 4: n_gpu is \\\"zero\\\"; expected an integer from 1"));
  EXPECT_THAT(all, HasSubstr("line 4: oop_time_us is \\\"-3\\\"; expected microseconds above 0"));
  EXPECT_THAT(all, HasSubstr("line 5: size_bytes is \\\"nan\\\""));
  EXPECT_THAT(all, HasSubstr("line 5: nccl_version is \\\"two\\\"; expected a version such as 2.27.7"));
  EXPECT_THAT(all, HasSubstr("line 5: harness is \\\"gloo\\\"; expected one of nccl-tests"));
  EXPECT_THAT(all, HasSubstr("line 5: settings is \\\"FAST=1\\\""));
  EXPECT_THAT(all, HasSubstr("line 5: n_gpu is \\\"64\\\"; expected between 1 and 8 GPUs on each of 2 nodes"));
}

TEST(CollectiveRows, OneFaultIsOneError) {
  const std::vector<std::string> found = row_faults(
      "all_reduce,H100-80GB,8,0,8,1024,,,,,,\n"
      "all_reduce,H100-80GB,8,1,8,1e18,,,,,,\n");
  const std::string all = testing::PrintToString(found);
  EXPECT_EQ(found.size(), 2U) << all;
  EXPECT_THAT(all, HasSubstr("line 2: n_nodes is \\\"0\\\""));
  EXPECT_THAT(all, HasSubstr("line 3: size_bytes is \\\"1e18\\\"; expected a number of bytes above 0, at most 1e15"));
}

TEST(CollectiveRows, VersionsAsPackagesWriteThem) {
  for (const char* version : {"2.27.7", "v2.27.7", "2.27.7-1", "2.27.7+cuda12.8"}) {
    const auto rows = parse_collective_rows(
        std::string(kHeader) + "all_reduce,H100-80GB,8,1,8,1024,1,,nvlink," + version + ",,\n", "t.csv");
    ASSERT_TRUE(rows.has_value()) << version;
    EXPECT_EQ(rows->front().version, 22707) << version;
  }
}

TEST(CollectiveRows, MachinesComeFromTheShippedTopologies) {
  const auto rows =
      parse_collective_rows(std::string(kHeader) +
                                "all_reduce,A100-SXM4-80GB,8,1,8,1024,1,,nvlink,2.27.3,,\n"
                                "all_reduce,GB300,64,16,4,1024,1,,nvl72,,,\n"
                                "all_reduce,H100(assumed),96,12,8,1024,1,,infiniband,,,NCCL_NVLS_ENABLE=0\n"
                                "all_reduce,V100,8,1,8,1024,1,,nvlink,,,\n",
                            "t.csv");
  ASSERT_TRUE(rows);
  RowMachines machines(data_directory());
  const auto a100 = machines.machine((*rows)[0], "t.csv");
  ASSERT_TRUE(a100);
  EXPECT_EQ(a100->gpu, NcclGpu::kAmpere);
  EXPECT_NEAR(a100->nvlink_rate, 240, 1e-9);
  EXPECT_EQ(a100->version, 22703);
  const auto gb300 = machines.machine((*rows)[1], "t.csv");
  ASSERT_TRUE(gb300);
  EXPECT_EQ(gb300->gpus_per_domain, 72);
  EXPECT_NEAR(gb300->nvlink_rate, 721.8, 1e-9);
  EXPECT_EQ(call_of((*rows)[1], *gb300).domains, 1);
  const auto h100 = machines.machine((*rows)[2], "t.csv");
  ASSERT_TRUE(h100);
  EXPECT_NEAR(h100->nvlink_rate, 370.8, 1e-9);
  EXPECT_FALSE(h100->nvls);
  EXPECT_EQ(call_of((*rows)[2], *h100).domains, 12);
  const auto v100 = machines.machine((*rows)[3], "t.csv");
  ASSERT_FALSE(v100);
  EXPECT_THAT(v100.error().front().to_string(), HasSubstr("unknown GPU \"V100\""));
}

}  // namespace
}  // namespace longhaul
