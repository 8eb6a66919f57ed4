// Transfers in flight, sharing links max-min fairly.
//
// Model. A transfer is one entity: bytes w_l on each of its links, one progress, one rate. Its rate r is counted in
// bytes per second on its reference link (the one with the largest bytes / bandwidth, where w = ref); link l then
// carries r w_l / ref. r never passes ref / byte_seconds (what it does alone), or a part of that while its owner slows
// it down (a rank's compute beside the communication kernel). Rates are max-min fair in r: no rate can grow without
// lowering one that is not larger. For plain flows (equal bytes on every link of a route) this is the classical fair
// share; two of them on a link get half each.
//
// Algorithm. When byte phases start or end, only the connected components (transfers joined by shared links) that they
// touch are solved again, by water-filling: raise all rates together, freeze those on the first link that is full or
// that reach their own limit, go on. O(E log L) for a component with E (transfer, link) entries and L links. A transfer
// that shares no link costs O(its links). All runs of one Transfer object in flight at once are one bundle with a
// multiplicity: a bundle alone on its links is solved in O(1).
//
// State. Per link the list of bundles on it (intrusive, int32 links in one pool), bytes delivered, peak load. Per flow
// the bytes left at the time of its last rate change: a flow whose rate stays the same is not touched, so progress does
// not drift, and an undisturbed transfer ends at exactly start + alone. A queue of times with lazy re-arming.
//
// Asserted always: time never goes back; at the end of a flow its bytes left are zero to within one picosecond at its
// rate; the load of a link is within its capacity (1e-9 relative, for rounding).
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

  // `cluster` must outlive this.
  explicit FlowSolver(const Cluster& cluster);
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
  // Rate changes computed so far, for tests and benchmarks of the cost.
  std::int64_t solved_entries() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul
