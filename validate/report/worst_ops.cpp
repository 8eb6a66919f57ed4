// The worst ops and what they have in common.
#include <fmt/format.h>

#include <algorithm>
#include <boost/math/distributions/hypergeometric.hpp>
#include <cmath>
#include <map>
#include <utility>

#include "validate/report/comparison.h"

namespace longhaul {
namespace {

constexpr std::size_t kWorst = 10;
constexpr std::size_t kLeastForTraits = 5;
constexpr double kMostChance = 0.01;

using TraitKey = std::pair<std::string, std::string>;

std::vector<TraitKey> traits_of(const ComparedSite& site) {
  std::vector<TraitKey> traits = {{"kind", site.kind},        {"pass", site.pass},
                                  {"label", site.label},      {"shape class", site.shape_class},
                                  {"prediction", site.basis}, {"kernel", site.kernel}};
  traits.push_back({"error", site.row.predicted < site.row.measured ? "predicted too short" : "predicted too long"});
  if (site.ranks.size() == 1) traits.push_back({"rank", fmt::format("{}", site.ranks.front())});
  return traits;
}

// P(at least `worst` of `drawn` sites have a trait that `having` of `all` have).
double chance_of(int worst, int drawn, int having, int all) {
  using boost::math::hypergeometric;
  const hypergeometric draws(static_cast<unsigned>(having), static_cast<unsigned>(drawn), static_cast<unsigned>(all));
  const int least = std::max(0, drawn + having - all);
  if (worst <= least) return 1;
  return boost::math::cdf(boost::math::complement(draws, static_cast<unsigned>(worst - 1)));
}

double difference(const ComparedSite& site) { return std::abs(site.row.predicted - site.row.measured); }

}  // namespace

WorstOps find_worst(const std::vector<ComparedSite>& sites) {
  std::vector<const ComparedSite*> measured;
  for (const ComparedSite& site : sites) {
    if (site.row.source == Source::kMeasured) measured.push_back(&site);
  }
  std::map<TraitKey, int> having;
  for (const ComparedSite* site : measured) {
    for (const TraitKey& trait : traits_of(*site)) ++having[trait];
  }
  std::stable_sort(measured.begin(), measured.end(),
                   [](const ComparedSite* a, const ComparedSite* b) { return difference(*a) > difference(*b); });
  WorstOps worst;
  std::map<TraitKey, int> among;
  for (std::size_t i = 0; i < std::min(kWorst, measured.size()); ++i) {
    worst.sites.push_back(*measured[i]);
    for (const TraitKey& trait : traits_of(*measured[i])) ++among[trait];
  }
  const int drawn = static_cast<int>(worst.sites.size());
  const int all = static_cast<int>(measured.size());
  if (worst.sites.size() < kLeastForTraits) return worst;
  for (const auto& [trait, count] : among) {
    if (2 * count < drawn || trait.second.empty()) continue;
    const double chance = chance_of(count, drawn, having[trait], all);
    if (chance < kMostChance)
      worst.traits.push_back({trait.first, trait.second, count, drawn, having[trait], all, chance});
  }
  std::stable_sort(worst.traits.begin(), worst.traits.end(),
                   [](const Trait& a, const Trait& b) { return a.chance < b.chance; });
  return worst;
}

}  // namespace longhaul
