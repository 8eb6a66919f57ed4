// Max-min fair rates from scratch, as the definition builds them: raise the levels (rate over weight) of all flows
// together; fix those that reach their cap or sit on a link that is full; go on with the others. O(flows^2 links).
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/network/transfer.h"

namespace longhaul {

struct NaiveFlow {
  const Transfer* transfer = nullptr;
  double slowdown = 1;
};

// The rates of byte phases in flight at once, in bytes per second on the link with the most bytes over bandwidth.
inline std::vector<double> naive_max_min(const Cluster& cluster, const std::vector<NaiveFlow>& flows) {
  const auto bandwidth = [&](LinkId link) { return cluster.links()[static_cast<std::size_t>(link)].bandwidth.value; };
  std::vector<double> reference;
  std::vector<double> cap;  // a level
  for (const NaiveFlow& flow : flows) {
    const LinkLoad most = *std::max_element(
        flow.transfer->loads.begin(), flow.transfer->loads.end(), [&](const LinkLoad& a, const LinkLoad& b) {
          return static_cast<double>(a.bytes) / bandwidth(a.link) < static_cast<double>(b.bytes) / bandwidth(b.link);
        });
    reference.push_back(static_cast<double>(most.bytes));
    cap.push_back(reference.back() / (flow.transfer->byte_seconds * flow.slowdown) / flow.transfer->weight);
  }
  std::vector<double> left;
  for (const Link& link : cluster.links()) left.push_back(link.bandwidth.value);
  std::vector<double> level(flows.size(), -1);
  std::vector<double> wanted;
  const auto weight = [&](std::size_t flow, const LinkLoad& load) {
    return flows[flow].transfer->weight * static_cast<double>(load.bytes) / reference[flow];
  };
  for (std::size_t fixed = 0; fixed < flows.size();) {
    wanted.assign(left.size(), 0);
    double lowest = std::numeric_limits<double>::infinity();
    for (std::size_t flow = 0; flow < flows.size(); ++flow) {
      if (level[flow] >= 0) continue;
      lowest = std::min(lowest, cap[flow]);
      for (const LinkLoad& load : flows[flow].transfer->loads) {
        wanted[static_cast<std::size_t>(load.link)] += weight(flow, load);
      }
    }
    for (std::size_t link = 0; link < left.size(); ++link) {
      if (wanted[link] > 0) lowest = std::min(lowest, std::max(0.0, left[link]) / wanted[link]);
    }
    const std::vector<double> before = left;
    for (std::size_t flow = 0; flow < flows.size(); ++flow) {
      if (level[flow] >= 0) continue;
      bool stops = cap[flow] <= lowest * (1 + 1e-12);
      for (const LinkLoad& load : flows[flow].transfer->loads) {
        const auto link = static_cast<std::size_t>(load.link);
        stops = stops || before[link] <= wanted[link] * lowest * (1 + 1e-12);
      }
      if (!stops) continue;
      ++fixed;
      level[flow] = lowest;
      for (const LinkLoad& load : flows[flow].transfer->loads) {
        left[static_cast<std::size_t>(load.link)] -= lowest * weight(flow, load);
      }
    }
  }
  for (std::size_t flow = 0; flow < flows.size(); ++flow) level[flow] *= flows[flow].transfer->weight;
  return level;
}

}  // namespace longhaul
