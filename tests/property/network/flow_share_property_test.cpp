// The rates of FlowShare are max-min fair: checked by the definition, not by a second solver.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "sim/network/flow_share.h"
#include "tests/unit/network/network_fixture.h"

namespace longhaul {
namespace {

struct Shared {
  std::vector<Transfer> transfers;
  std::vector<FlowShare::BundleId> bundle;  // of each flow
  std::vector<std::size_t> transfer;        // of each flow
};

// A transfer over few links of a small set, with any bytes on each, and often a limit below what its links allow.
Transfer any_uneven_transfer(const Cluster& cluster) {
  const unsigned links = *rc::gen::inRange(1u, 1u << 12) & *rc::gen::element(0xfffu, 0x249u, 0x0f0u, 0x003u);
  Transfer transfer;
  for (LinkId link = 0; link < 12; ++link) {
    if ((links >> link & 1u) == 0 && (links != 0 || link != 5)) continue;
    transfer.loads.push_back({link, *rc::gen::inRange<std::int64_t>(1, 1'000'000)});
    transfer.byte_seconds =
        std::max(transfer.byte_seconds,
                 Bytes{transfer.loads.back().bytes} / cluster.links()[static_cast<std::size_t>(link)].bandwidth);
  }
  transfer.byte_seconds *= *rc::gen::element(1.0, 1.25, 2.0, 8.0);
  return transfer;
}

// A flow may not be raised: it is at its limit, or one of its links is full and carries no faster flow.
RC_GTEST_PROP(FlowShare, RatesAreMaxMinFair, ()) {
  static const Cluster cluster = shipped_cluster("dgx-h200-ndr", 16);
  FlowShare share(cluster);
  Shared shared;
  shared.transfers.resize(*rc::gen::inRange<std::size_t>(1, 15));
  for (Transfer& transfer : shared.transfers) transfer = any_uneven_transfer(cluster);
  std::map<FlowShare::BundleId, double> rates;
  const auto steps = *rc::gen::inRange<std::size_t>(1, 60);
  for (std::size_t step = 0; step < steps; ++step) {
    if (!shared.bundle.empty() && *rc::gen::inRange(0, 3) == 0) {
      const auto gone = static_cast<std::ptrdiff_t>(*rc::gen::inRange<std::size_t>(0, shared.bundle.size()));
      share.remove(*(shared.bundle.begin() + gone));
      shared.bundle.erase(shared.bundle.begin() + gone);
      shared.transfer.erase(shared.transfer.begin() + gone);
    } else {
      shared.transfer.push_back(*rc::gen::inRange<std::size_t>(0, shared.transfers.size()));
      shared.bundle.push_back(share.add(shared.transfers[shared.transfer.back()]));
    }
    if (*rc::gen::inRange(0, 4) == 0) continue;  // several changes at once
    for (const FlowShare::BundleRate& change : share.solve()) rates[change.bundle] = change.rate;
    std::vector<double> load(cluster.links().size());
    std::vector<double> fastest(cluster.links().size());
    for (std::size_t flow = 0; flow < shared.bundle.size(); ++flow) {
      const double rate = rates.at(shared.bundle[flow]);
      const double reference = share.reference(shared.bundle[flow]);
      for (const LinkLoad& on : shared.transfers[shared.transfer[flow]].loads) {
        load[static_cast<std::size_t>(on.link)] += rate * static_cast<double>(on.bytes) / reference;
        fastest[static_cast<std::size_t>(on.link)] = std::max(fastest[static_cast<std::size_t>(on.link)], rate);
      }
    }
    for (std::size_t flow = 0; flow < shared.bundle.size(); ++flow) {
      const double rate = rates.at(shared.bundle[flow]);
      bool bound = rate >= share.limit(shared.bundle[flow]) * (1 - 1e-9);
      for (const LinkLoad& on : shared.transfers[shared.transfer[flow]].loads) {
        const auto link = static_cast<std::size_t>(on.link);
        const double bandwidth = cluster.links()[link].bandwidth.value;
        RC_ASSERT(load[link] <= bandwidth * (1 + 1e-9));
        bound = bound || (load[link] >= bandwidth * (1 - 1e-9) && rate >= fastest[link] * (1 - 1e-9));
      }
      RC_ASSERT(bound);
      RC_ASSERT(rate <= share.limit(shared.bundle[flow]));
    }
  }
}

}  // namespace
}  // namespace longhaul
