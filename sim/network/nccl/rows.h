// Rows of collectives: measured tables, and what `longhaul collective` reads (cli.md, "Row formats").
//
// Columns: collective,gpu,n_gpu,n_nodes,gpus_per_node,size_bytes; where there fabric,nccl_version,harness,settings
// ("NCCL_ALGO=NVLS", "NCCL_NVLS_ENABLE=0", separated by blanks) and the measured oop_time_us,ip_time_us. Harnesses:
// nccl-tests and rccl-tests (a thread or process a GPU), "nccl-tests -g" and "rccl-tests -g" (one thread launches all
// GPUs of a host), pytorch. Sizes count as nccl-tests prints them. Fabrics joined by '+' ("nvl72+unstated") name the
// domain and the network between domains.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/network/nccl/model.h"

namespace longhaul {

struct CollectiveRow {
  int line = 0;  // of the file, from 1
  NcclCollective collective = NcclCollective::kAllReduce;
  std::string gpu;
  int ranks = 0;
  int nodes = 0;
  int gpus_per_node = 0;
  double bytes = 0;
  std::string fabric;          // empty: not stated
  int version = kNcclVersion;  // 10000 major + 100 minor + patch
  Harness harness = Harness::kNcclTests;
  bool nvls_off = false;                     // NCCL_NVLS_ENABLE=0
  std::optional<NcclAlgorithm> forced = {};  // NCCL_ALGO
  std::optional<double> measured_us = {};    // out of place where it is there, else in place
};

// All rows, or every fault at once with file, line and column: a column that is missing (with the nearest), an unknown
// collective, harness, algorithm or setting, counts and sizes that are no positive integers, ranks that do not fill the
// nodes named, a measured time that is not above zero.
Expected<std::vector<CollectiveRow>> parse_collective_rows(const std::string& csv, const std::string& file);

// The row's machine out of the shipped topologies (sim/cluster/find_topology.h), its NCCL version and settings applied.
// The same topologies are read once a call of this class.
class RowMachines {
 public:
  explicit RowMachines(std::string data_directory) : data_directory_(std::move(data_directory)) {}

  // Errors: no shipped topology stands for the row (the GPU, fabric or node size that is not known, with those that
  // are); ranks that the machine cannot hold.
  Expected<NcclMachine> machine(const CollectiveRow& row, const std::string& file);

 private:
  std::string data_directory_;
  struct Known {
    std::string key;
    Expected<NcclMachine> machine;
  };
  std::vector<Known> known_;
};

NcclMachine with_settings(NcclMachine machine, const CollectiveRow& row);
// The call of a row on the machine: ranks fill the nodes named, and domains as full as can be.
NcclCall call_of(const CollectiveRow& row, const NcclMachine& machine);
// What the row's benchmark measures on top of a call that takes `us` over `channels` channels.
double harness_us(const NcclConstants& constants, const CollectiveRow& row, int channels, double us);
// What the row's benchmark would print: the call and the harness.
NcclTime predict(const NcclConstants& constants, const NcclMachine& machine, const CollectiveRow& row);

}  // namespace longhaul
