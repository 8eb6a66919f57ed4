// What the executor asks the time models: how long a kernel takes alone, and the network in which transfers share
// links.
//
// Two small interfaces, so that the engine is tested with fixed times and runs with calibrated ones. Answers are
// cached: a duration is asked for once a (shape, segment, op), a transfer is prepared once a distinct collective call.
// Both must be deterministic functions of what they are asked.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/core/sim_time.h"
#include "sim/cost/estimate.h"
#include "sim/network/collectives.h"
#include "sim/schedule/schedule.h"

namespace longhaul {

struct OpDuration {
  Time time;  // alone on the device
  KernelKind kernel = KernelKind::kElementwise;
  std::int64_t tiles = 0;          // of a GEMM's output, as OverlapModel counts them
  Time below = {}, above = {};     // its 90 % interval: time - below to time + above
  std::optional<Time> issue = {};  // host time to issue it; nothing: that of a launch
  // Part of `time` at its beginning: work of a host that has waited until the op's stream ran dry, and goes on after
  // it.
  std::optional<Time> stall = {};
  // Part of `time` at its end in which its last blocks run: multiprocessors come free, and a collective that it kept
  // off the device begins.
  double last_wave = 0;
  // Its first kernel takes the device: a collective that an event tells at the same time comes behind it.
  bool takes_device_at_once = false;
};

class OpDurations {
 public:
  virtual ~OpDurations() = default;
  // For ops that are neither collective nor empty. Must not depend on the layer nor, given equal shapes, on the rank.
  virtual OpDuration duration(const Schedule& schedule, const OpInstance& at) const = 0;
  // Host time of one launch.
  virtual Time launch() const = 0;
  // Factor >= 1 on the time of a kernel or host copy while something else runs beside it on its rank (`beside` is not
  // empty; `tiles` as its OpDuration has them), and on the time of a transfer while such a kernel runs on one of its
  // ranks. Must not change during a run.
  virtual double kernel_slowdown(OverlapClass kernel, const Beside& beside, std::int64_t tiles) const = 0;
  virtual double transfer_slowdown(OverlapClass beside) const = 0;
  // Whether a running kernel of this class keeps a collective that is launched meanwhile off its rank's device, until
  // it drains.
  virtual bool holds_transfers(OverlapClass kernel) const = 0;
};

// One meeting of a group: what its members do, in member order.
struct CollectiveCall {
  const Schedule* schedule = nullptr;
  GroupId group = 0;
  CollectiveKind kind = CollectiveKind::kExchange;
  std::int64_t buffer_bytes = 0;        // as collective_buffer_bytes; not for exchanges
  std::span<const OpInstance> members;  // of an exchange all; of another kind, whose members all do the same, one
};

// What one member of an exchange does, as far as its kernel shows it.
struct MemberExchange {
  std::int64_t largest_message = 0;  // bytes, sent or received
  std::int32_t peers = 0;            // that it sends to or receives from, whichever are more; not itself
  std::int64_t messages = 0;         // sum over the peers of the larger of what is sent and received
  std::int32_t partners = 0;         // that it sends to or receives from
};

// Channels that its kernel takes of its rank: while it waits for others, and in the mean once all have come.
struct ExchangeChannels {
  int waiting = 0, moving = 0;
};

struct MemberBytes {
  std::int64_t sent_intra_node = 0;
  std::int64_t sent_inter_node = 0;
  std::int64_t received = 0;
};

// What a transfer takes from the kernels of each of its ranks.
struct TransferUse {
  int channels = 0;    // not of an exchange: each of its members has its own (exchange_channels)
  double seconds = 0;  // alone
  // Made and taken in by switches that multicast and reduce: sent + copied = received + merged over all members.
  std::int64_t copied_bytes = 0;
  std::int64_t merged_bytes = 0;
};

struct TaggedSlowdown {
  std::uint32_t tag = 0;
  double factor = 1;
};

class CollectiveNetwork {
 public:
  using TransferId = std::int32_t;
  virtual ~CollectiveNetwork() = default;
  // Called once for each distinct call. Asserts that the members ask for the same: what one sends, the other receives.
  virtual TransferId prepare(const CollectiveCall& call) = 0;
  // Follows from the member's own part, known before the others have come.
  virtual ExchangeChannels exchange_channels(const Schedule& schedule, GroupId group, const MemberExchange& member) = 0;
  // In member order.
  virtual std::span<const MemberBytes> traffic(TransferId transfer) const = 0;
  virtual TransferUse use(TransferId transfer) const = 0;
  // A tag is that of one transfer in flight at a time.
  virtual void start(Time now, TransferId transfer, std::uint32_t tag) = 0;
  // The same of an exchange whose members came at `arrivals`, in member order, the last of them now: what could pass
  // between those that were there before it has passed.
  virtual void start_exchange(Time now, TransferId transfer, std::uint32_t tag, std::span<const Time> /*arrivals*/) {
    start(now, transfer, tag);
  }
  // From `now` on (not after next()) the bytes of transfers in flight take at least `factor` times as long as alone.
  virtual void slow(Time now, std::span<const TaggedSlowdown> transfers) = 0;
  // Time::max() if nothing is in flight.
  virtual Time next() const = 0;
  // Moves to next() and appends the tags of the transfers that end then.
  virtual void advance(Time to, std::vector<std::uint32_t>& finished) = 0;
  // Bytes by link so far, and the largest utilisation; empty if there are no links.
  virtual std::vector<std::int64_t> link_bytes() const = 0;
  virtual std::vector<double> link_peak_utilisation() const = 0;
};

// Durations out of a kernel model. Gemm passes: backward with a transposed A is the weight gradient, backward without
// is the input gradient, all else forward. Attention is one varlen launch over the op's pieces, but equal sequences of
// one document each are one dense launch over batch x heads. A Move on a copy stream crosses the host link; elsewhere
// it copies in the device.
class KernelDurations : public OpDurations {
 public:
  // `scale` multiplies every kernel's time (not the launch): a what-if knob. `model` must outlive this.
  explicit KernelDurations(const KernelModel& model, double scale = 1)
      : model_(&model), overlap_(model.overlap()), scale_(scale) {}
  OpDuration duration(const Schedule& schedule, const OpInstance& at) const override;
  // The same, unscaled and not rounded, with the ends of its interval and what it stands on.
  Estimate estimate(const Schedule& schedule, const OpInstance& at) const;
  Time launch() const override;
  double kernel_slowdown(OverlapClass kernel, const Beside& beside, std::int64_t tiles) const override {
    return overlap_.kernel(kernel, beside, tiles);
  }
  double transfer_slowdown(OverlapClass beside) const override { return overlap_.transfer(beside); }
  bool holds_transfers(OverlapClass kernel) const override { return overlap_.holds_transfers(kernel); }

 private:
  const KernelModel* model_;
  OverlapModel overlap_;
  double scale_;
};

// Transfers on the links of a cluster. A rank's self-copy in an exchange costs what Collectives says.
std::unique_ptr<CollectiveNetwork> make_flow_network(const Cluster& cluster, double scale = 1);

// Of the op at `at`, an exchange.
MemberExchange member_exchange(const Schedule& schedule, const OpInstance& at);

// Who sends what in an exchange, in member order of senders; asserts that every send has its receive of equal size.
// Self-copies are messages from a rank to itself.
std::vector<PeerMessage> exchange_messages(const CollectiveCall& call);

}  // namespace longhaul
