// Writes the quantile table workloads/lengths/pile-like.csv to standard output.
//
// Model (flashcp.md 3.5, "pile-like" sampler): a document's component is drawn with weight effective GiB / mean KiB
// (the number of its documents); its length is lognormal with the component's mean size at 4.2 bytes a token and a
// standard deviation of ln(length) of 1.0. Each row is the tokens at which the mixture's distribution function reaches
// the quantile, found by bisection. The last row stands for quantile 1 - 1e-7, where the table ends.
//
// This is a tool: it may use exp and log. What ships is the table.
#include <fmt/format.h>

#include <array>
#include <boost/math/distributions/lognormal.hpp>
#include <boost/math/tools/roots.hpp>
#include <cmath>
#include <utility>
#include <vector>

namespace {

constexpr double kBytesPerToken = 4.2;
constexpr double kLnDeviation = 1.0;
constexpr double kLastQuantile = 1 - 1e-7;

struct Component {
  double mean_kib;
  double effective_gib;
};

// Mean document size and effective size of the components of the Pile (arXiv 2101.00027, table 1).
constexpr std::array kPile = {
    Component{4.33, 227.12},  Component{30.55, 180.55}, Component{538.36, 151.44}, Component{3.85, 125.54},
    Component{46.61, 112.42}, Component{5.25, 95.16},   Component{15.06, 76.73},   Component{2.16, 64.39},
    Component{4.08, 45.81},   Component{1.30, 38.53},   Component{398.73, 27.19},  Component{30.48, 19.47},
    Component{1.11, 19.13},   Component{8.00, 15.49},   Component{545.48, 11.03},  Component{369.87, 9.45},
    Component{68.87, 9.17},   Component{4.92, 7.80},    Component{22.55, 7.47},    Component{73.37, 4.76},
    Component{2.11, 3.79},    Component{1.78, 1.76}};

double mixture_cdf(double tokens) {
  double weights = 0;
  double below = 0;
  for (const Component& component : kPile) {
    const double weight = component.effective_gib / component.mean_kib;
    const double mean_tokens = component.mean_kib * 1024 / kBytesPerToken;
    const boost::math::lognormal length(std::log(mean_tokens) - kLnDeviation * kLnDeviation / 2, kLnDeviation);
    weights += weight;
    below += weight * boost::math::cdf(length, tokens);
  }
  return below / weights;
}

double mixture_quantile(double quantile) {
  const auto [low, high] =
      boost::math::tools::bisect([quantile](double tokens) { return mixture_cdf(tokens) - quantile; }, 1e-3, 1e9,
                                 boost::math::tools::eps_tolerance<double>(40));
  return (low + high) / 2;
}

// Steps of 1e-3 to 0.99, then ten times finer for each further nine.
std::vector<double> quantile_grid() {
  std::vector<double> grid;
  for (int i = 0; i < 990; ++i) grid.push_back(i * 1e-3);
  for (double step = 1e-4; step > 0.5e-7; step /= 10) {
    for (int i = 100; i > 10; --i) grid.push_back(1 - i * step);
  }
  return grid;
}

}  // namespace

int main() {
  fmt::print(
      "# \"pile-like\" mix: the Pile's components (arXiv 2101.00027, table 1) drawn with weight effective GiB / mean "
      "KiB,\n"
      "# length lognormal with the component's mean at 4.2 bytes a token and ln-sd 1.0 (inferred, not measured)\n"
      "# computed by workloads/lengths/tools/pile_like.cpp; the last row is the quantile 1 - 1e-7\n"
      "# quantile of document length in tokens; linear interpolation between rows\n"
      "quantile,tokens\n");
  for (const double quantile : quantile_grid()) {
    const double tokens = quantile == 0 ? 1 : std::max(1.0, mixture_quantile(quantile));
    fmt::print("{:.7f},{:.2f}\n", quantile, tokens);
  }
  fmt::print("{:.7f},{:.2f}\n", 1.0, mixture_quantile(kLastQuantile));
}
