// Who shares which link, and the max-min fair rates that follow: the part of the flow solver without time.
//
// A bundle is all byte phases of one Transfer that run at once and are slowed by one factor: they have equal rates. See
// sim/network/flow_solver.h for the model.
//
// Algorithm: local level relaxation. A flow has a level, its rate over its weight. A link that has more to carry than
// its capacity has a level too; the others have none (infinity). Two rules define a state:
//   * a flow's level is the least of its own cap and of the levels of its links;
//   * a link without a level has load <= capacity; a link with one is full, the load being the sum of all flows on it,
//     so that its level L solves sum_i w_i min(L, m_i) = capacity, where m_i is what flow i would have without the
//     link.
// A state that meets both is max-min fair: a flow below its cap has a full link on which no flow has a higher level.
// (And it is the only such: by induction over the levels from the lowest up, Bertsekas and Gallager, Data Networks,
// section 6.5.2.) A change of flows breaks the second rule on the links of these flows. These are relaxed, lowest level
// first: the link's equation is solved from its old level by Newton's method (a concave, piecewise linear function:
// finitely many steps), the flows whose level changes carry the change to their other links, until all rules hold. All
// changes since the last solve() are one batch. Components that nothing touched are not looked at.
//
// eps. A link with a level may stay below its capacity by eps of what the flows at its level carry before it is solved
// again; a link over its capacity is always solved. So with any eps no link is overloaded, and every flow is at its cap
// or has a link on which it is the fastest and whose spare is at most eps of its capacity. Nothing accumulates: the
// spare is compared with the present state, not with the last change. eps 0 is exact: changes below 1e-13 of a level,
// or below the rounding of a link's load, stop.
//
// State. Links: capacity, load, level, the list of places of bundles on it. Bundles: rate, cap, their places. Links
// with one bundle need no level: the cap of a bundle counts what each of its links allows it alone. Complexity. Start
// or end: O(links of the transfer). Relaxing a link: O(bundles on it + links of those at its level). How many links are
// relaxed depends on how far a change reaches: 2 with 64 random pairs on 64 GPUs, 80 with 10,000 on 1,024, one for a
// bundle that shares nothing, which costs O(1) when it only changes its number of flows.
//
// Levels are in bytes per second on the bundle's reference link, over its weight. Deterministic: no order depends on
// addresses. Asserted always: no link carries more than its bandwidth (1e-9 relative, for rounding).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/network/transfer.h"

namespace longhaul {

class FlowShare {
 public:
  using BundleId = std::int32_t;

  // The rate of every flow of a bundle: bytes per second on its reference link.
  struct BundleRate {
    BundleId bundle = 0;
    double rate = 0;
  };

  // 0 <= eps < 1.
  explicit FlowShare(const Cluster& cluster, double eps = 0);

  // Adds one flow of `transfer` (which has loads), whose limit is that of a transfer that takes `slowdown` >= 1 times
  // as long alone; returns its bundle. Rates hold only after the next solve().
  BundleId add(const Transfer& transfer, double slowdown = 1);
  // Takes one flow out. The bundle is gone with its last flow.
  void remove(BundleId bundle);
  // Solves all changes since the last call; returns the rates of the bundles that had one or whose rate has changed,
  // each once, in a deterministic order. The list is valid until the next call.
  const std::vector<BundleRate>& solve();

  // Bytes on the reference link, and the most that a flow of the bundle can do when alone.
  double reference(BundleId bundle) const { return terms_[static_cast<std::size_t>(bundle)].reference; }
  double limit(BundleId bundle) const { return terms_[static_cast<std::size_t>(bundle)].limit; }
  const std::vector<double>& peak_utilisation() const { return peak_; }
  // (Bundle, link) pairs looked at so far by solve().
  std::int64_t solved_entries() const { return solved_entries_; }

 private:
  static constexpr std::uint8_t kChanged = 1;
  static constexpr std::uint8_t kRaised = 2;  // puts more on its links than at the last solve()
  static constexpr double kNoLevel = std::numeric_limits<double>::infinity();

  // Who is on a link: nobody, one bundle at one of its entries, or several, which the link's state lists.
  struct Occupant {
    BundleId bundle = kNobody;
    std::int32_t entry = 0;
  };
  static constexpr BundleId kNobody = -1;
  static constexpr BundleId kSeveral = -2;

  // A place of a bundle on a link that several share, seen from the link and from the bundle.
  struct Slot {
    BundleId bundle = 0;
    std::int32_t entry = 0;
    double weight = 0;  // bytes on this link over bytes on the reference link, times the weight of the transfer
  };
  struct Entry {
    LinkId link = 0;
    std::int32_t slot = 0;
    double weight = 0;
  };
  // Kept only while two bundles or more are on the link. One line of cache, as all that relaxing touches.
  struct alignas(64) LinkState {
    double capacity = 0;
    double load = 0;
    double level = kNoLevel;
    double weight = 0;  // sum over flows
    double bound = 0;   // sum over flows at the link's level
    std::vector<Slot> slots;
  };
  struct alignas(64) Bundle {
    double level = 0;
    double cap = 0;
    double reported = 0;  // level as last reported
    double weight = 1;
    std::vector<Entry> entries;
    std::int32_t flows = 0;
    std::int32_t shared_links = 0;  // links with another bundle on them
  };
  // The rest of a bundle.
  struct Terms {
    const Transfer* transfer = nullptr;
    double slowdown = 1;
    double reference = 0;
    double limit = 0;        // a rate
    double limit_level = 0;  // over the weight
    double tightest = 0;     // max over links of weight / bandwidth
    double peak_total = 0;   // largest flows x level counted in peak_ while alone
  };
  struct Candidate {
    double level = 0;  // of the bundle without the link that is relaxed
    double weight = 0;
    BundleId bundle = 0;
  };
  struct Dirty {
    double level = 0;
    LinkId link = 0;
  };

  bool shared(LinkId id) const { return occupant_[static_cast<std::size_t>(id)].bundle == kSeveral; }
  Terms& terms(BundleId id) { return terms_[static_cast<std::size_t>(id)]; }
  Bundle& at(BundleId id) { return bundles_[static_cast<std::size_t>(id)]; }
  LinkState& link(LinkId id) { return links_[static_cast<std::size_t>(id)]; }
  BundleId find(const Transfer& transfer, double slowdown);
  BundleId create(const Transfer& transfer, double slowdown);
  void measure(BundleId id);
  void change_flows(BundleId id, int change);
  void link_in(BundleId id, std::int32_t entry);
  void unlink(const Entry& entry);
  void touch(BundleId id, bool raised);
  void set_level(BundleId id, double level, LinkId except);
  double level_without(const Bundle& bundle, LinkId except);
  bool holds(const LinkState& on) const;
  void check(LinkId id);
  void relax(LinkId id);
  double solve_level(const LinkState& at, double& bound);
  void report(BundleId id);
  void count_peaks(BundleId id);

  double eps_;
  std::vector<double> inverse_capacity_;  // by link
  std::vector<Occupant> occupant_;        // by link
  std::vector<LinkState> links_;
  std::vector<std::uint8_t> queued_;  // by link: in dirty_
  std::vector<double> peak_;          // by link
  std::vector<Bundle> bundles_;
  std::vector<Terms> terms_;           // by bundle
  std::vector<std::uint8_t> touched_;  // by bundle, since the last solve(): kChanged, kRaised
  std::vector<BundleId> free_;
  std::vector<BundleId> changed_;
  std::vector<Dirty> dirty_;  // a heap, lowest level first
  std::vector<Candidate> candidates_;
  std::vector<BundleRate> rates_;
  std::int64_t solved_entries_ = 0;
};

}  // namespace longhaul
