#include "sim/analysis/breakdown.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

// One side of the interval: `residual` is |low| or |high| by kernel kind, `of_contention` that of what overlap adds,
// `of_collectives` that of exposed communication.
template <class Residual>
Time half_width(const RankTotals& rank, Residual residual, double of_contention, double of_collectives) {
  double squares = 0;
  Time busy;
  for (int kind = 0; kind < kKernelKindCount; ++kind) {
    const Time time = rank.kernel_kind[static_cast<std::size_t>(kind)];
    busy += time;
    const double error = time.seconds() * residual(static_cast<KernelKind>(kind));
    squares += error * error;
  }
  const double contention = rank.contention.seconds() * of_contention;
  const Time waits = rank.bubble + rank.imbalance + rank.tail;
  double kernels = std::sqrt(squares);
  if (busy > Time::zero()) kernels *= 1 + waits.seconds() / busy.seconds();
  const double communication = of_collectives * rank.exposed_communication.seconds();
  return Time::from_seconds(std::sqrt(kernels * kernels + contention * contention + communication * communication));
}

}  // namespace

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

Ends step_ends(Time step, const RankTotals& rank, const KernelModel& kernels, double of_collectives) {
  const Time below = half_width(
      rank, [&](KernelKind kind) { return std::abs(kernels.residual_low(kind)); },
      std::abs(kernels.overlap_residual_low()), of_collectives);
  const Time above = half_width(
      rank, [&](KernelKind kind) { return std::abs(kernels.residual_high(kind)); }, kernels.overlap_residual_high(),
      of_collectives);
  return {below < step ? step - below : Time::zero(), step + above};
}

}  // namespace longhaul
