#include "sim/analysis/breakdown.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "sim/core/invariant.h"

namespace longhaul {

const char* to_string(TimePart part) {
  static constexpr std::array<const char*, kTimePartCount> kNames = {
      "compute", "recompute", "optimizer", "contention", "exposed_communication",
      "bubble",  "imbalance", "launch",    "tail"};
  return kNames[static_cast<std::size_t>(part)];
}

Time TimeSplit::sum() const {
  Time sum;
  for (const Time part : parts) sum += part;
  return sum;
}

TimeSplit split_time(const RankTotals& rank) {
  TimeSplit split;
  split[TimePart::kCompute] = rank.busy(Pass::kForward) + rank.busy(Pass::kBackward);
  split[TimePart::kRecompute] = rank.busy(Pass::kRecompute);
  split[TimePart::kOptimizer] = rank.busy(Pass::kOptimizer);
  split[TimePart::kContention] = rank.contention;
  split[TimePart::kExposedCommunication] = rank.exposed_communication;
  split[TimePart::kBubble] = rank.bubble;
  split[TimePart::kImbalance] = rank.imbalance;
  split[TimePart::kLaunch] = rank.launch;
  split[TimePart::kTail] = rank.tail;
  return split;
}

ComputeSplit split_compute(const RankTotals& rank) {
  ComputeSplit split;
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    split.attention += rank.busy(pass, OpKind::kAttention);
    split.gemm += rank.busy(pass, OpKind::kGemm);
    split.memory += rank.busy(pass) - rank.busy(pass, OpKind::kAttention) - rank.busy(pass, OpKind::kGemm);
  }
  return split;
}

bool network_is_busiest(std::span<const std::int64_t> link_bytes, const Cluster& cluster) {
  LH_ASSERT(link_bytes.empty() || link_bytes.size() == cluster.links().size(), "{} links, bytes of {}",
            cluster.links().size(), link_bytes.size());
  double inside = 0;
  double between = 0;
  for (std::size_t i = 0; i < link_bytes.size(); ++i) {
    const Link& link = cluster.links()[i];
    const bool nvlink = cluster.link_classes()[link.link_class].name == cluster.topology().nvlink.name;
    double& most = nvlink ? inside : between;
    most = std::max(most, static_cast<double>(link_bytes[i]) / link.bandwidth.value);
  }
  return between > 0 && between >= inside;
}

std::string bound_by(const RankTotals& rank, bool network_is_busiest) {
  const ComputeSplit compute = split_compute(rank);
  const std::vector<std::pair<const char*, Time>> candidates = {
      {"compute: attention", compute.attention},
      {"compute: gemm", compute.gemm},
      {"memory traffic", compute.memory + rank.busy(Pass::kOptimizer)},
      {"recompute", rank.busy(Pass::kRecompute)},
      {"contention", rank.contention},
      {network_is_busiest ? "exposed communication between nodes" : "exposed communication inside a node",
       rank.exposed_communication},
      {"bubble", rank.bubble},
      {"imbalance", rank.imbalance},
      {"launch", rank.launch},
  };
  std::size_t most = 0;
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    if (candidates[i].second > candidates[most].second) most = i;
  }
  return candidates[most].first;
}

double collective_half_width(const Totals& totals, const Cluster& cluster, const NcclResiduals& residuals) {
  std::int64_t sent = 0;
  for (const RankTotals& rank : totals.ranks) sent += rank.sent_intra_node + rank.sent_inter_node;
  const double calls = static_cast<double>(std::max<std::int64_t>(1, totals.collectives));
  const double mean =
      static_cast<double>(sent) / calls / static_cast<double>(std::max<std::size_t>(1, totals.ranks.size()));
  const ResidualNodes nodes = residual_nodes(cluster.topology(), network_is_busiest(totals.link_bytes, cluster));
  return residuals.of(nodes, mean);
}

}  // namespace longhaul
