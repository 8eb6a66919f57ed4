// Who shares which link, and the max-min fair rates that follow: the part of the flow solver without time.
//
// A bundle is all byte phases of one Transfer that run at once and are slowed by one factor: they have equal rates. See
// sim/network/flow_solver.h for the model. Rates are in bytes per second on the bundle's reference link.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/network/transfer.h"

namespace longhaul {

class FlowShare {
 public:
  using BundleId = std::int32_t;

  // The rate of every flow of a bundle.
  struct BundleRate {
    BundleId bundle = 0;
    double rate = 0;
  };

  explicit FlowShare(const Cluster& cluster);

  // Adds one flow of `transfer` (which has loads), whose limit is that of a transfer that takes `slowdown` >= 1 times
  // as long alone; returns its bundle. Rates hold only after the next solve().
  BundleId add(const Transfer& transfer, double slowdown = 1);
  // Takes one flow out. The bundle is gone with its last flow.
  void remove(BundleId bundle);
  // Solves every component that was touched since the last call; returns the rates of the bundles in them, each
  // once, in a deterministic order. The list is valid until the next call.
  const std::vector<BundleRate>& solve();

  // Bytes on the reference link, and the most that a flow of the bundle can do when alone.
  double reference(BundleId bundle) const { return bundles_[static_cast<std::size_t>(bundle)].reference; }
  double limit(BundleId bundle) const { return bundles_[static_cast<std::size_t>(bundle)].limit; }
  const std::vector<double>& peak_utilisation() const { return peak_; }
  std::int64_t solved_entries() const { return solved_entries_; }

 private:
  // Where a bundle stands in the list of a link.
  struct Place {
    BundleId bundle = -1;
    std::int32_t entry = -1;
    bool none() const { return bundle < 0; }
  };
  struct Entry {
    LinkId link = 0;
    double weight = 0;  // bytes on this link over bytes on the reference link
    Place previous;
    Place next;
  };
  struct Bundle {
    const Transfer* transfer = nullptr;
    std::vector<Entry> entries;
    double reference = 0;
    double slowdown = 1;
    double limit = 0;
    double tightest = 0;    // max over links of weight / bandwidth
    double rate = 0;        // as last reported
    double peak_total = 0;  // largest flows x rate counted in peak_ while alone
    std::int32_t flows = 0;
    std::int32_t shared_links = 0;  // links with another bundle on them
    std::uint64_t visited = 0;
    bool frozen = false;
  };
  struct Level {
    double rate = 0;
    std::int32_t id = 0;  // a link, or -1 - bundle for a bundle's own limit
  };

  Bundle& at(BundleId id) { return bundles_[static_cast<std::size_t>(id)]; }
  Entry& at(Place place) { return at(place.bundle).entries[static_cast<std::size_t>(place.entry)]; }
  BundleId find(const Transfer& transfer, double slowdown);
  BundleId create(const Transfer& transfer, double slowdown);
  void link_in(Place place);
  void unlink(Place place);
  void touch(BundleId bundle) { touched_.push_back(bundle); }
  void solve_alone(BundleId id);
  void gather(BundleId seed);
  void fill();
  void freeze(BundleId id, double rate);
  void freeze_link(LinkId link, double rate);
  double level_of(LinkId link);  // negative when nobody on it is unfrozen
  void check_loads();
  void report(BundleId id, double rate);

  const Cluster* cluster_;
  std::vector<double> inverse_bandwidth_;  // by link
  std::vector<Place> head_;                // by link
  std::vector<double> peak_;               // by link
  std::vector<double> residual_;           // by link, valid for the links of the component being solved
  std::vector<std::uint64_t> link_visited_;
  std::vector<Bundle> bundles_;
  std::vector<BundleId> free_;
  std::vector<BundleId> touched_;
  std::vector<BundleId> component_;
  std::vector<LinkId> component_links_;
  std::vector<Level> levels_;  // a heap, lowest first
  std::vector<BundleRate> rates_;
  std::uint64_t visit_ = 0;
  std::size_t unfrozen_ = 0;  // bundles of the component without a rate yet
  std::int64_t solved_entries_ = 0;
};

}  // namespace longhaul
