// Rows of the `collective` command: collectives as nccl-tests names them in, their predicted times out (cli.md, "Row
// formats").
//
// Columns are read as sim/network/nccl/rows.h says, and all are kept: with NCCL's version and settings where a row
// gives them. n_gpu ranks on n_nodes hosts, spread evenly, out of the gpus_per_node GPUs that a host has (GB200 and
// GB300: trays of four, 72 GPUs an NVLink domain, over as few domains as hold them and evenly).
// A row's time is that of the simulator's own Transfer alone on the cluster, plus what the harness adds.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/cluster/topology.h"
#include "sim/core/error.h"
#include "sim/network/collectives.h"

namespace longhaul {

struct CollectivePrediction {
  std::vector<std::string> fields;  // as given
  double us = 0;
  double busbw_GBps = 0;
  std::string algorithm;  // "ring LL128", "NVLS Simple"
};

struct CollectivePredictions {
  std::vector<std::string> columns;
  std::vector<CollectivePrediction> rows;
  std::vector<std::string> notes;  // machines that stood in for others, each once
};

// `topology`: what all rows run on; their gpu and fabric then say nothing. Without: the shipped topology of each row's
// GPU, fabric and hosts. Errors: all of the file, with file, line and column.
Expected<CollectivePredictions> predict_collectives(const std::string& csv, const std::string& file,
                                                    const std::optional<Topology>& topology,
                                                    const std::string& data_directory);

// The transfer of one call over `ranks` of a cluster: what a row's time is taken from.
Transfer nccl_tests_transfer(Collectives& collectives, NcclCollective collective, std::span<const int> ranks,
                             Bytes size);

// `ranks` ranks, spread evenly over `nodes` hosts: the first GPUs of a host, hosts spread evenly over as few NVLink
// domains as hold them.
std::vector<int> nccl_tests_ranks(const Topology& topology, int nodes, int ranks);

// Bus bandwidth over algorithm bandwidth (size / time), as nccl-tests defines it (doc/PERFORMANCE.md): all_reduce
// 2(n-1)/n; all_gather, reduce_scatter, alltoall (n-1)/n; broadcast and sendrecv 1.
double busbw_factor(NcclCollective collective, int ranks);

}  // namespace longhaul
