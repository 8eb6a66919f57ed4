// Collectives::exchange and what is made of it: groups of sends and receives.
#include <algorithm>

#include "sim/core/invariant.h"
#include "sim/core/units.h"
#include "sim/network/all_pairs.h"
#include "sim/network/collectives.h"
#include "sim/network/nccl/graph.h"

namespace longhaul {

// Of the busiest rank, each figure by itself.
struct Collectives::Peers {
  int ranks = 0;
  int domains = 0;
  int near = 0;  // peers that one rank sends to or receives from
  int far = 0;
  std::int64_t near_message = 0;
  std::int64_t far_message = 0;
  std::int64_t near_bytes = 0;  // that one rank sends or receives
};

namespace {

struct Counts {
  int near_out = 0;
  int near_in = 0;
  int far_out = 0;
  int far_in = 0;
  std::int64_t near_received = 0;
};

}  // namespace

// Begins the sheet, with members by rank.
Collectives::Peers Collectives::put_messages(std::span<const PeerMessage> messages) {
  std::vector<std::int32_t> slot(static_cast<std::size_t>(cluster_->gpus()), -1);
  std::vector<int> ranks;
  const auto note = [&](int rank) {
    LH_ASSERT(rank >= 0 && rank < cluster_->gpus(), "rank {} of {} in an exchange", rank, cluster_->gpus());
    if (slot[static_cast<std::size_t>(rank)] >= 0) return;
    slot[static_cast<std::size_t>(rank)] = 0;
    ranks.push_back(rank);
  };
  for (const PeerMessage& message : messages) {
    LH_ASSERT(message.bytes.value >= 0, "{} bytes from rank {} to {}", message.bytes.value, message.from, message.to);
    note(message.from);
    note(message.to);
  }
  std::sort(ranks.begin(), ranks.end());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    slot[static_cast<std::size_t>(ranks[i])] = static_cast<std::int32_t>(i);
  }
  Peers peers;
  peers.ranks = static_cast<int>(ranks.size());
  int last_domain = -1;
  for (const int rank : ranks) {
    if (cluster_->domain_of(rank) != last_domain) ++peers.domains;
    last_domain = cluster_->domain_of(rank);
  }
  sheet_.begin(ranks);
  std::vector<Counts> counts(ranks.size());
  for (const PeerMessage& message : messages) {
    const std::int64_t bytes = message.bytes.value;
    if (message.from == message.to || bytes == 0) continue;
    sheet_.send(message.from, message.to, bytes);
    Counts& from = counts[static_cast<std::size_t>(slot[static_cast<std::size_t>(message.from)])];
    Counts& to = counts[static_cast<std::size_t>(slot[static_cast<std::size_t>(message.to)])];
    if (cluster_->domain_of(message.from) == cluster_->domain_of(message.to)) {
      ++from.near_out;
      ++to.near_in;
      to.near_received += bytes;
      peers.near_message = std::max(peers.near_message, bytes);
    } else {
      ++from.far_out;
      ++to.far_in;
      peers.far_message = std::max(peers.far_message, bytes);
    }
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const MemberTraffic& traffic = sheet_.member(ranks[i]);
    peers.near = std::max({peers.near, counts[i].near_out, counts[i].near_in});
    peers.far = std::max({peers.far, counts[i].far_out, counts[i].far_in});
    peers.near_bytes = std::max({peers.near_bytes, traffic.sent_intra_node, counts[i].near_received});
  }
  return peers;
}

NcclExchange Collectives::describe(const Peers& peers) const {
  NcclExchange exchange;
  exchange.ranks = peers.ranks;
  exchange.domains = peers.domains;
  exchange.near_peers = peers.near;
  exchange.far_peers = peers.far;
  exchange.near_message = static_cast<double>(peers.near_message);
  exchange.far_message = static_cast<double>(peers.far_message);
  exchange.near_bytes = static_cast<double>(peers.near_bytes);
  // NCCL's model rates a GPU by its part of the NICs. What counts is what the NICs carry: a GPU that sends alone has a
  // shared NIC to itself, and messages that all go to one rail meet on its NIC.
  for (const LinkId id : sheet_.touched()) {
    const LinkClass& kind = cluster_->link_classes()[cluster_->links()[static_cast<std::size_t>(id)].link_class];
    if (kind.name != "nic") continue;
    const double part = machine_.nic_rate * kGiga / kind.rated.value;
    exchange.far_bytes = std::max(exchange.far_bytes, static_cast<double>(sheet_.load(id)) * part);
  }
  return exchange;
}

Transfer Collectives::exchange(std::span<const PeerMessage> messages) {
  const Peers peers = put_messages(messages);
  if (peers.near + peers.far == 0) {
    Transfer nothing;
    sheet_.take(nothing);
    return {};
  }
  double extra_us = -1e18;
  for (const PeerMessage& message : messages) {
    if (message.from == message.to || message.bytes.value == 0) continue;
    extra_us = std::max(extra_us, wires_.message(message.from, message.to));
  }
  return finish(nccl_time(*constants_, machine_, describe(peers)), extra_us, 1, peers.far);
}

int Collectives::exchange_channels(int ranks, int domains, int peers, Bytes largest_message) const {
  return p2p_channels(machine_, ranks, domains, peers, static_cast<double>(largest_message.value));
}

int moving_channels(int channels, int partners, Bytes messages, Bytes largest) {
  if (partners == 0 || partners > channels) return channels;
  const std::int64_t most = partners * largest.value;
  return static_cast<int>((channels * messages.value + most - 1) / most);
}

Transfer Collectives::all_to_all(std::span<const int> ranks, Bytes per_peer) {
  LH_ASSERT(per_peer.value >= 0, "{} bytes from each rank to each other", per_peer.value);
  if (ranks.size() < 2 || per_peer.value == 0) return {};
  return cluster_->routes_by_pattern() ? all_to_all_by_pattern(ranks, per_peer) : all_to_all_by_pair(ranks, per_peer);
}

Transfer Collectives::all_to_all_by_pattern(std::span<const int> ranks, Bytes per_peer) {
  const AllPairs pairs(*cluster_, ranks);
  sheet_.begin(pairs.ranks());
  pairs.put(sheet_, per_peer.value);
  const std::int64_t bytes = per_peer.value;
  Peers peers;
  peers.ranks = static_cast<int>(pairs.ranks().size());
  peers.domains = pairs.domains();
  peers.near = pairs.largest_domain() - 1;
  peers.far = peers.ranks - pairs.smallest_domain();
  peers.near_message = peers.near > 0 ? bytes : 0;
  peers.far_message = peers.far > 0 ? bytes : 0;
  peers.near_bytes = peers.near * bytes;
  const double extra_us = pairs.longest_wire(wires_);
  return finish(nccl_time(*constants_, machine_, describe(peers)), extra_us, 1, peers.far);
}

Transfer Collectives::all_to_all_by_pair(std::span<const int> ranks, Bytes per_peer) {
  std::vector<PeerMessage> messages;
  messages.reserve(ranks.size() * ranks.size());
  for (const int from : ranks) {
    for (const int to : ranks) messages.push_back({from, to, per_peer});
  }
  return exchange(messages);
}

Transfer Collectives::send_receive(std::span<const int> ranks, Bytes message) {
  std::vector<PeerMessage> messages;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    messages.push_back({ranks[i], ranks[(i + 1) % ranks.size()], message});
  }
  return exchange(messages);
}

Transfer Collectives::all_to_all_v(std::span<const int> ranks, std::span<const Bytes> messages) {
  const std::size_t count = ranks.size();
  LH_ASSERT(messages.size() == count * count, "{} messages among {} ranks", messages.size(), count);
  std::vector<PeerMessage> list;
  list.reserve(count * count);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < count; ++j) list.push_back({ranks[i], ranks[j], messages[i * count + j]});
  }
  return exchange(list);
}

}  // namespace longhaul
