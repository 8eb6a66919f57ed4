// Clusters and transfers for the tests of sim/network.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/network/flow_solver.h"
#include "sim/network/transfer.h"

namespace longhaul {

inline Cluster shipped_cluster(const std::string& name, int gpus) {
  return *make_cluster(*read_topology(name, LONGHAUL_SOURCE_ROOT), gpus);
}

// Nodes of eight GPUs whose NICs carry exactly 1 GB/s (8 Gb/s, efficiency 1): easy arithmetic.
inline Cluster plain_cluster(int gpus, double scale = 1) {
  Topology topology = *read_topology("dgx-h200-ndr", LONGHAUL_SOURCE_ROOT);
  topology.nic.rated = {1e9 * scale};
  topology.nic.efficiency = 1;
  topology.nvlink.rated.value *= scale;
  return *make_cluster(topology, gpus);
}

inline LinkId link_named(const Cluster& cluster, const std::string& name) {
  for (std::size_t id = 0; id < cluster.links().size(); ++id) {
    if (cluster.links()[id].name == name) return static_cast<LinkId>(id);
  }
  return -1;
}

// `bytes` on each of the links, as a plain flow over that path.
inline Transfer path_transfer(const Cluster& cluster, std::vector<LinkId> links, std::int64_t bytes,
                              Time latency = Time::zero()) {
  std::sort(links.begin(), links.end());
  Transfer transfer;
  for (const LinkId link : links) {
    transfer.loads.push_back({link, bytes});
    transfer.byte_seconds =
        std::max(transfer.byte_seconds, Bytes{bytes} / cluster.links()[static_cast<std::size_t>(link)].bandwidth);
  }
  transfer.latency = latency;
  transfer.alone = latency + Time::from_seconds(transfer.byte_seconds);
  return transfer;
}

struct Start {
  Time time;
  const Transfer* transfer = nullptr;
};

// Runs all; returns the finish time of each, in the order given. `starts` need not be sorted. `follow` is told of every
// end and may give what the flow does next, from that time on; its finish is that of the last.
using Follow = std::function<const Transfer*(std::size_t flow, Time now)>;
inline std::vector<Time> run_flows(FlowSolver& solver, const std::vector<Start>& starts,
                                   const Follow& follow = nullptr) {
  std::vector<std::size_t> order(starts.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return starts[a].time < starts[b].time; });
  std::vector<Time> finish(starts.size());
  std::vector<std::uint32_t> done;
  std::size_t next = 0;
  while (next < order.size() || solver.next() != Time::max()) {
    if (next < order.size() && starts[order[next]].time <= solver.next()) {
      solver.start(starts[order[next]].time, *starts[order[next]].transfer, static_cast<std::uint32_t>(order[next]));
      ++next;
      continue;
    }
    const Time now = solver.next();
    done.clear();
    solver.advance(now, done);
    for (const std::uint32_t flow : done) {
      finish[flow] = now;
      const Transfer* more = follow ? follow(flow, now) : nullptr;
      if (more != nullptr) solver.start(now, *more, flow);
    }
  }
  return finish;
}

inline std::vector<int> rank_range(int count, int first = 0, int stride = 1) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) ranks[static_cast<std::size_t>(i)] = first + i * stride;
  return ranks;
}

// Bytes by link name.
inline std::map<std::string, std::int64_t> loads_by_name(const Cluster& cluster, const Transfer& transfer) {
  std::map<std::string, std::int64_t> loads;
  for (const LinkLoad& load : transfer.loads) {
    loads[cluster.links()[static_cast<std::size_t>(load.link)].name] += load.bytes;
  }
  return loads;
}

}  // namespace longhaul
