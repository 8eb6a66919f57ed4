// Transfers in flight, sharing links max-min fairly.
//
// Model. A transfer is one entity: bytes w_l on each of its links, one progress, one rate. Its rate r is counted in
// bytes per second on its reference link (the one with the largest bytes / bandwidth, where w = ref); link l then
// carries r w_l / ref. r never passes ref / byte_seconds (what it does alone), or a part of that while its owner slows
// it down (a rank's compute beside the communication kernel). Rates are max-min fair in r: no rate can grow without
// lowering one that is not larger. For plain flows (equal bytes on every link of a route) this is the classical fair
// share; two of them on a link get half each.
//
// A transfer of weight n gets n times the rate of one of weight 1 where both are held by the same link: rates over
// weights are what is max-min fair.
//
// Algorithm. Rates by local level relaxation (sim/network/flow_share.h): when byte phases start or end, the links that
// they use are solved again, then those links that the changes reach, and no others. All changes of one instant are one
// batch: they are solved when time moves on. Exact by default. With eps > 0 a link that holds flows back may keep a
// spare of up to eps of its capacity; none is ever overloaded. All runs of one Transfer object in flight at once are
// one bundle with a multiplicity: a bundle alone on its links is solved in O(1).
//
// State. Per link the bundles on it, load, level, bytes delivered, peak load: O(links + (transfer, link) pairs in
// flight). Per flow the bytes left at the time of its last rate change: a flow whose rate stays the same is not
// touched, so progress does not drift, and an undisturbed transfer ends at exactly start + alone. A heap of finish
// times: an entry is pushed when a finish moves to an earlier time; one that moves to a later time is put back when it
// comes up. Complexity of an event: O(log flows) and the pairs that its change reaches; about 1,800 of 40,000 with
// 10,000 flows between random pairs (docs/performance-log.md).
//
// Asserted always: time never goes back; at the end of a flow its bytes left are zero to within one picosecond at its
// rate; the load of a link is within its capacity (1e-9 relative, for rounding); bytes delivered by a link are at most
// its bandwidth times the time since its first byte, plus that rounding.
// Ignores: what is not simulated. Background traffic is a lower bandwidth of the link (sim/cluster).
// Deterministic: depends only on the order of calls.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/core/sim_time.h"
#include "sim/network/transfer.h"

namespace longhaul {

class FlowSolver {
 public:
  using FlowId = std::int32_t;
  struct Slowdown {
    FlowId flow = 0;
    double factor = 1;  // >= 1
  };

  // `cluster` must outlive this. 0 <= eps < 1; 0 is exact.
  explicit FlowSolver(const Cluster& cluster, double eps = 0);
  ~FlowSolver();
  FlowSolver(FlowSolver&&) noexcept;
  FlowSolver& operator=(FlowSolver&&) noexcept;

  // Starts a transfer at `now` (not before the last time given, not after next()); its bytes start to move at
  // now + transfer.latency. `transfer` must outlive the flow. `tag` comes back from advance(). The
  // returned number is the flow's until it ends.
  FlowId start(Time now, const Transfer& transfer, std::uint32_t tag);

  // The next time at which anything happens: a finish, or the start of a byte phase (which may delay finishes that are
  // not due yet). Time::max() when nothing is in flight. A start() may make it earlier.
  Time next() const;

  // Moves to `to`, which must equal next(), and appends the tags of all flows that end then, in the order of their
  // starts. May append none, when only byte phases start.
  void advance(Time to, std::vector<std::uint32_t>& finished);

  // From `now` on (not before the last time given, not after next()) the byte phase of each flow takes at least
  // `factor` times as long as alone; 1 takes it back. The latency before it is not touched. All changes are solved at
  // once.
  void slow(Time now, std::span<const Slowdown> flows);

  // Flows started and not ended.
  std::int64_t in_flight() const;
  // Bytes delivered on each link by ended flows.
  const std::vector<std::int64_t>& delivered() const;
  // The largest load that each link has had, as a part of its bandwidth.
  const std::vector<double>& peak_utilisation() const;
  // (Transfer, link) pairs looked at so far, for tests and benchmarks of the cost.
  std::int64_t solved_entries() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul
