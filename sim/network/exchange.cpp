// Collectives::exchange: one group of sends and receives.
#include <algorithm>

#include "sim/core/invariant.h"
#include "sim/network/collectives.h"
#include "sim/network/protocol.h"

namespace longhaul {
namespace {

constexpr double kGiga = 1e9;
constexpr double kMicro = 1e-6;
constexpr int kPairChannels = 16;  // channels that two GPUs use between them when neither has another peer
constexpr std::int64_t kFillLeast = 2 << 20;
constexpr std::int64_t kFillMost = 16 << 20;

}  // namespace

struct Collectives::Peers {
  int most = 0;             // peers that one rank sends to or receives from
  int most_inter_node = 0;  // the same, on other nodes
  std::int64_t largest_message = 0;
  std::int64_t largest_local = 0;  // bytes that one rank sends inside its node
  bool changes_rail = false;       // a message to another node first crosses NVLink
};

// Fills transfer.members, by rank.
Collectives::Peers Collectives::count_peers(std::span<const PeerMessage> messages, Transfer& transfer) {
  struct Counts {
    int out = 0;
    int in = 0;
    int out_far = 0;
    int in_far = 0;
  };
  std::vector<int> ranks;
  const auto note = [&](int rank) {
    LH_ASSERT(rank >= 0 && rank < cluster_->gpus(), "rank {} of {} in an exchange", rank, cluster_->gpus());
    std::int32_t& slot = slot_[static_cast<std::size_t>(rank)];
    if (slot >= 0) return;
    slot = 0;
    ranks.push_back(rank);
  };
  for (const PeerMessage& message : messages) {
    LH_ASSERT(message.bytes.value >= 0, "{} bytes from rank {} to {}", message.bytes.value, message.from, message.to);
    note(message.from);
    note(message.to);
  }
  std::sort(ranks.begin(), ranks.end());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    slot_[static_cast<std::size_t>(ranks[i])] = static_cast<std::int32_t>(i);
    transfer.members.push_back({ranks[i], 0, 0, 0});
  }
  std::vector<Counts> counts(ranks.size());
  Peers peers;
  for (const PeerMessage& message : messages) {
    if (message.from == message.to || message.bytes.value == 0) continue;
    const auto from = static_cast<std::size_t>(slot_[static_cast<std::size_t>(message.from)]);
    const auto to = static_cast<std::size_t>(slot_[static_cast<std::size_t>(message.to)]);
    const bool far = cluster_->node_of(message.from) != cluster_->node_of(message.to);
    (far ? transfer.members[from].sent_inter_node : transfer.members[from].sent_intra_node) += message.bytes.value;
    transfer.members[to].received += message.bytes.value;
    ++counts[from].out;
    ++counts[to].in;
    counts[from].out_far += far ? 1 : 0;
    counts[to].in_far += far ? 1 : 0;
    peers.largest_message = std::max(peers.largest_message, message.bytes.value);
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    slot_[static_cast<std::size_t>(ranks[i])] = -1;
    peers.most = std::max({peers.most, counts[i].out, counts[i].in});
    peers.most_inter_node = std::max({peers.most_inter_node, counts[i].out_far, counts[i].in_far});
    peers.largest_local = std::max(peers.largest_local, transfer.members[i].sent_intra_node);
  }
  return peers;
}

// What the slowest route adds to an exchange's own constant, which holds one step over the NVLink that it was fitted
// with: a message inside a node, or the NVLink step of one that changes rails, differs from that step only.
double Collectives::slowest_route(const Topology& topology, const Peers& peers, Protocol protocol) {
  const double nvlink = nvlink_extra_us(topology) * kMicro;
  if (peers.most_inter_node == 0) return nvlink;
  const double far = network_hop_seconds(topology, protocol) + (peers.changes_rail ? nvlink : 0);
  return peers.largest_local > 0 ? std::max(nvlink, far) : far;
}

void Collectives::time_exchange(const Peers& peers, Transfer& transfer) const {
  const Topology& topology = cluster_->topology();
  const NcclConstants& nccl = nccl_constants(topology.device.generation);
  transfer.algorithm = Algorithm::kDirect;
  transfer.protocol = peers.largest_message <= kExchangeLlBytes ? Protocol::kLl : Protocol::kSimple;
  std::vector<double> efficiency(cluster_->link_classes().size(), 1.0);
  double latency = nccl.start_us * kMicro;
  const double route = slowest_route(topology, peers, transfer.protocol);
  double least = 0;
  if (transfer.protocol == Protocol::kLl) {
    latency += nccl.exchange_ll_us * kMicro + route;
    least = static_cast<double>(peers.largest_message) / (kExchangeLlRate * kGiga);
  } else {
    latency += kExchangeSimpleUs * kMicro + route;
    const double rate = topology.nvlink.effective().value;
    if (peers.largest_local > 0) {
      // Two stages, into the receiver's buffer and out of it: the first chunks fill the pipeline.
      const double others = static_cast<double>(peers.most) / (peers.most + 1);
      const double fill =
          std::min(static_cast<double>(kFillMost) * others,
                   std::max(static_cast<double>(peers.largest_local), static_cast<double>(kFillLeast) * others));
      const int near = std::max(1, peers.most - peers.most_inter_node);
      latency += fill / (2 * rate * (topology.node_fabric == NodeFabric::kPairs ? near : 1));
    }
    for (std::size_t kind = 0; kind < efficiency.size(); ++kind) {
      const LinkClass& link_class = cluster_->link_classes()[kind];
      if (link_class.name == topology.nvlink.name) {
        const double channels = kPairChannels * nccl.exchange_channel_rate * kGiga / rate;
        efficiency[kind] = peers.most == 1 ? std::min(kExchangeNvLinkEfficiency, channels) : kExchangeNvLinkEfficiency;
      } else if (link_class.name == topology.nic.name && peers.most_inter_node > 1) {
        efficiency[kind] = std::min(1.0, kExchangeNicEfficiency / link_class.efficiency);
      }
    }
  }
  const double bytes = std::max(least, link_seconds(efficiency));
  transfer.latency = Time::from_seconds(latency);
  transfer.byte_seconds = bytes;
  transfer.alone = transfer.latency + Time::from_seconds(bytes);
}

Transfer Collectives::exchange(std::span<const PeerMessage> messages) {
  Transfer transfer;
  Peers peers = count_peers(messages, transfer);
  if (peers.most == 0) return Transfer{};
  for (const PeerMessage& message : messages) {
    if (message.from == message.to || message.bytes.value == 0) continue;
    const Route route = add_route(message.from, message.to, message.bytes.value);
    const bool nvlink = is_nvlink(route.front()) || is_nvlink(route.back());
    peers.changes_rail |= nvlink && cluster_->node_of(message.from) != cluster_->node_of(message.to);
  }
  time_exchange(peers, transfer);
  return std::move(take_loads(transfer));
}

}  // namespace longhaul
