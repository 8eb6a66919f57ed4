// The rates of FlowShare while flows come and go: max-min fair by the definition, equal to a solution from scratch.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>

#include "sim/network/flow_share.h"
#include "tests/unit/network/naive_max_min.h"
#include "tests/unit/network/network_fixture.h"

namespace longhaul {
namespace {

constexpr int kLinks = 12;

const Cluster& cluster() {
  static const Cluster cluster = shipped_cluster("dgx-h200-ndr", 16);
  return cluster;
}

double bandwidth(LinkId link) { return cluster().links()[static_cast<std::size_t>(link)].bandwidth.value; }

// A transfer over few links of a small set, with any bytes on each, often a limit below what its links allow, and any
// weight.
Transfer any_uneven_transfer() {
  const unsigned links = *rc::gen::inRange(1u, 1u << kLinks) & *rc::gen::element(0xfffu, 0x249u, 0x0f0u, 0x003u);
  const bool plain = *rc::gen::arbitrary<bool>();
  const auto bytes = *rc::gen::inRange<std::int64_t>(1, 1'000'000);
  Transfer transfer;
  for (LinkId link = 0; link < kLinks; ++link) {
    if ((links >> link & 1u) == 0 && (links != 0 || link != 5)) continue;
    transfer.loads.push_back({link, plain ? bytes : *rc::gen::inRange<std::int64_t>(1, 1'000'000)});
    const double seconds = static_cast<double>(transfer.loads.back().bytes) / bandwidth(link);
    transfer.byte_seconds = std::max(transfer.byte_seconds, seconds);
  }
  transfer.byte_seconds *= *rc::gen::element(1.0, 1.25, 2.0, 8.0);
  transfer.weight = *rc::gen::element(1.0, 1.0, 0.5, 3.0, 100.0);
  return transfer;
}

// Flows of a few transfers that start and end in any order; several changes a solve.
class SharedRun {
 public:
  explicit SharedRun(double eps) : share_(cluster(), eps) {
    transfers_.resize(*rc::gen::inRange<std::size_t>(1, 20));
    for (Transfer& transfer : transfers_) transfer = any_uneven_transfer();
  }

  void change() {
    const auto changes = *rc::gen::weightedElement<int>({{6, 1}, {2, 2}, {1, 12}});
    for (int i = 0; i < changes; ++i) {
      if (!flows_.empty() && *rc::gen::inRange(0, 3) == 0) {
        const auto gone = static_cast<std::ptrdiff_t>(*rc::gen::inRange<std::size_t>(0, flows_.size()));
        share_.remove(bundles_[static_cast<std::size_t>(gone)]);
        flows_.erase(flows_.begin() + gone);
        bundles_.erase(bundles_.begin() + gone);
      } else {
        const double slowdown = *rc::gen::element(1.0, 1.0, 1.0, 2.5);
        flows_.push_back({&transfers_[*rc::gen::inRange<std::size_t>(0, transfers_.size())], slowdown});
        bundles_.push_back(share_.add(*flows_.back().transfer, slowdown));
      }
    }
    for (const FlowShare::BundleRate& changed : share_.solve()) rates_[changed.bundle] = changed.rate;
  }

  const std::vector<NaiveFlow>& flows() const { return flows_; }
  double rate(std::size_t flow) const { return rates_.at(bundles_[flow]); }
  double level(std::size_t flow) const { return rate(flow) / flows_[flow].transfer->weight; }
  double reference(std::size_t flow) const { return share_.reference(bundles_[flow]); }
  double limit(std::size_t flow) const { return share_.limit(bundles_[flow]); }

  // No link carries more than its bandwidth; no flow may be raised: it is at its limit, or one of its links is full but
  // for `spare` of its bandwidth, and carries no flow with a higher level.
  void check_fair(double spare) const {
    std::vector<double> load(cluster().links().size());
    std::vector<double> highest(cluster().links().size());
    for (std::size_t flow = 0; flow < flows_.size(); ++flow) {
      for (const LinkLoad& on : flows_[flow].transfer->loads) {
        const auto link = static_cast<std::size_t>(on.link);
        load[link] += rate(flow) * static_cast<double>(on.bytes) / reference(flow);
        highest[link] = std::max(highest[link], level(flow));
      }
    }
    for (LinkId link = 0; link < kLinks; ++link) {
      RC_ASSERT(load[static_cast<std::size_t>(link)] <= bandwidth(link) * (1 + 1e-9));
    }
    for (std::size_t flow = 0; flow < flows_.size(); ++flow) {
      RC_ASSERT(rate(flow) <= limit(flow));
      bool bound = rate(flow) >= limit(flow) * (1 - 1e-9);
      for (const LinkLoad& on : flows_[flow].transfer->loads) {
        const auto link = static_cast<std::size_t>(on.link);
        const bool full = load[link] >= bandwidth(on.link) * (1 - spare - 1e-9);
        bound = bound || (full && level(flow) >= highest[link] * (1 - 1e-9));
      }
      RC_ASSERT(bound);
    }
  }

 private:
  FlowShare share_;
  std::vector<Transfer> transfers_;
  std::vector<NaiveFlow> flows_;
  std::vector<FlowShare::BundleId> bundles_;  // by flow
  std::map<FlowShare::BundleId, double> rates_;
};

RC_GTEST_PROP(FlowShare, RatesAreMaxMinFair, ()) {
  SharedRun run(0);
  const int steps = *rc::gen::inRange(1, 60);
  for (int step = 0; step < steps; ++step) {
    run.change();
    run.check_fair(0);
  }
}

RC_GTEST_PROP(FlowShare, RatesAreThoseOfASolutionFromScratch, ()) {
  SharedRun run(0);
  const int steps = *rc::gen::inRange(1, 60);
  for (int step = 0; step < steps; ++step) {
    run.change();
    const std::vector<double> expected = naive_max_min(cluster(), run.flows());
    for (std::size_t flow = 0; flow < expected.size(); ++flow) {
      RC_ASSERT(std::abs(run.rate(flow) - expected[flow]) <= 1e-9 * expected[flow]);
    }
  }
}

// With eps no link is overloaded, and what it leaves unused is at most eps of it, after any number of changes.
RC_GTEST_PROP(FlowShare, EpsBoundsTheSpareOfALink, ()) {
  const double eps = *rc::gen::element(1e-6, 1e-3, 1e-2, 0.2);
  SharedRun run(eps);
  const int steps = *rc::gen::inRange(1, 60);
  for (int step = 0; step < steps; ++step) {
    run.change();
    run.check_fair(eps);
  }
}

}  // namespace
}  // namespace longhaul
