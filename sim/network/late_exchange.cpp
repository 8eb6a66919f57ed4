// Exchanges whose members do not come together: what is left of one when the last member comes.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "sim/core/invariant.h"
#include "sim/network/collectives.h"

namespace longhaul {
namespace {

bool moves(const PeerMessage& message) { return message.from != message.to && message.bytes.value > 0; }

// Bytes of each rank by direction and kind of link, while messages are added, and what the busiest needs for them.
class RankBytes {
 public:
  RankBytes(const Cluster& cluster, const NcclMachine& machine)
      : cluster_(&cluster), machine_(&machine), bytes_(static_cast<std::size_t>(cluster.gpus())) {}

  void add(const PeerMessage& message) {
    if (!moves(message)) return;
    const bool far = cluster_->domain_of(message.from) != cluster_->domain_of(message.to);
    const std::size_t kind = far ? kFar : 0;
    take(message.from, kind, message.bytes.value);
    take(message.to, kind + 1, message.bytes.value);
  }
  double seconds_of(int rank) const {
    double seconds = 0;
    for (std::size_t i = 0; i < kKinds; ++i) seconds = std::max(seconds, seconds_of(rank, i));
    return seconds;
  }
  double busiest() const { return busiest_; }

 private:
  static constexpr std::size_t kFar = 2, kKinds = 4;  // out, in; out, in over the network

  double seconds_of(int rank, std::size_t kind) const {
    const double rate = (kind < kFar ? machine_->nvlink_rate : machine_->nic_rate) * 1e9;
    const std::int64_t bytes = bytes_[static_cast<std::size_t>(rank)][kind];
    return bytes == 0 ? 0 : static_cast<double>(bytes) / rate;
  }
  void take(int rank, std::size_t kind, std::int64_t bytes) {
    bytes_[static_cast<std::size_t>(rank)][kind] += bytes;
    busiest_ = std::max(busiest_, seconds_of(rank, kind));
  }

  const Cluster* cluster_;
  const NcclMachine* machine_;
  std::vector<std::array<std::int64_t, kKinds>> bytes_;  // by rank
  double busiest_ = 0;
};

// The rest of `transfer` that has run for `done`, less than its time.
Transfer rest_of(Transfer transfer, Time done) {
  const Time of_latency = std::min(done, transfer.latency);
  const Time of_bytes = done - of_latency;
  const double fraction = of_bytes.ps() == 0 ? 1 : 1 - of_bytes.seconds() / transfer.byte_seconds;
  for (LinkLoad& load : transfer.loads) {
    load.bytes = std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(load.bytes) * fraction));
  }
  transfer.latency -= of_latency;
  transfer.byte_seconds *= fraction;
  transfer.alone = transfer.latency + Time::from_seconds(transfer.byte_seconds);
  return transfer;
}

}  // namespace

bool Collectives::waits_matter(std::span<const PeerMessage> messages, std::span<const int> ranks) const {
  if (ranks.size() < 3) return false;
  RankBytes bytes(*cluster_, machine_);
  for (const PeerMessage& message : messages) bytes.add(message);
  return std::any_of(ranks.begin(), ranks.end(), [&](int rank) { return bytes.seconds_of(rank) < bytes.busiest(); });
}

// Seconds that the busiest link takes for what is in the sheet.
double Collectives::busiest_link() const {
  double seconds = 0;
  for (const LinkId id : sheet_.touched()) {
    const LinkClass& kind = cluster_->link_classes()[cluster_->links()[static_cast<std::size_t>(id)].link_class];
    seconds = std::max(seconds, static_cast<double>(sheet_.load(id)) / kind.rated.value);
  }
  return seconds;
}

Transfer Collectives::exchange_left(const Transfer& whole, std::span<const PeerMessage> messages,
                                    std::span<const int> ranks, std::span<const Time> waited) {
  LH_ASSERT(ranks.size() == waited.size(), "{} waits of {} members", waited.size(), ranks.size());
  std::vector<Time> waits(waited.begin(), waited.end());
  std::sort(waits.begin(), waits.end());
  waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
  std::vector<std::size_t> turn(static_cast<std::size_t>(cluster_->gpus()));  // by rank: 0 came last
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto at = std::lower_bound(waits.begin(), waits.end(), waited[i]) - waits.begin();
    turn[static_cast<std::size_t>(ranks[i])] = static_cast<std::size_t>(at);
  }
  const auto turn_of = [&](const PeerMessage& message) {
    return std::min(turn[static_cast<std::size_t>(message.from)], turn[static_cast<std::size_t>(message.to)]);
  };
  std::vector<std::vector<std::size_t>> by_turn(waits.size());
  for (std::size_t i = 0; i < messages.size(); ++i) by_turn[turn_of(messages[i])].push_back(i);

  // The turn whose messages, with those of all later members, take longest from now on, by the busiest link's part.
  std::vector<double> busiest;
  sheet_.begin(ranks);
  for (const std::vector<std::size_t>& of_turn : by_turn) {
    for (const std::size_t i : of_turn) {
      if (moves(messages[i])) sheet_.send(messages[i].from, messages[i].to, messages[i].bytes.value);
    }
    busiest.push_back(busiest_link());
  }
  Transfer unused;
  sheet_.take(unused);
  std::size_t last = 0;
  double longest = 0;
  for (std::size_t i = 0; i < busiest.size(); ++i) {
    const double left = whole.byte_seconds * busiest[i] / busiest.back() - (waits[i] - waits.front()).seconds();
    if (left <= longest) continue;
    longest = left;
    last = i;
  }
  const auto from_turn = [&](std::size_t until) {
    std::vector<PeerMessage> of(messages.begin(), messages.end());
    for (PeerMessage& message : of) {
      if (turn_of(message) > until) message.bytes = Bytes{0};  // kept: NCCL's plan goes by the communicator
    }
    return exchange(of);
  };
  Transfer of_last = from_turn(0);
  if (last == 0) return of_last;
  Transfer longer = from_turn(last);
  const Time done = waits[last] - waits.front();
  if (longer.alone - done <= of_last.alone) return of_last;
  return rest_of(std::move(longer), done);
}

}  // namespace longhaul
