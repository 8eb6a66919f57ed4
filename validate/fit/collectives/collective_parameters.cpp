#include "validate/fit/collectives/collective_parameters.h"

#include <fmt/format.h>

#include <cmath>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

using enum NcclGpu;
using enum NcclNetwork;

constexpr double kWeak = 1;    // a factor of e
constexpr double kFirm = 0.3;  // rates and efficiencies, known to a third

// MI355X runs RCCL, of which no one-node table is there: Hopper's constants stand in.
const std::vector<NcclGpu> kNewer = {kHopper, kBlackwell, kCdna};
const std::vector<NcclGpu> kEvery = {kAmpere, kHopper, kBlackwell, kCdna};
const std::vector<NcclNetwork> kRdma = {kInfiniBand, kRoce, kEthernet};
const std::vector<NcclNetwork> kAllNetworks = {kInfiniBand, kRoce, kEfa1, kEfa2, kTcpx, kTcpxo, kEthernet};

// NCCL's NVLink rate of a GPU over Hopper's.
double nvlink_ratio(NcclGpu gpu) {
  constexpr double kHopperRate = 370.8;
  return gpu == kAmpere ? 240 / kHopperRate : gpu == kBlackwell ? 721.8 / kHopperRate : 1;
}

class Builder {
 public:
  void gpus(const std::vector<NcclGpu>& gpus, GpuTerm term, double prior, double spread = kWeak) {
    CollectiveParameter parameter;
    parameter.name = fmt::format("{}.{}", nccl_name(gpus.front()), nccl_name(term));
    parameter.prior = prior;
    parameter.spread = spread;
    for (const NcclGpu gpu : gpus) parameter.gpus.push_back({gpu, term});
    out.push_back(std::move(parameter));
  }
  void pair(GpuTerm term, double ampere, double hopper) {
    gpus({kAmpere}, term, ampere);
    gpus(kNewer, term, hopper);
  }
  void networks(const std::vector<NcclNetwork>& networks, NetworkTerm term, double prior, double spread = kWeak) {
    CollectiveParameter parameter;
    parameter.name = fmt::format("{}.{}", nccl_name(networks.front()), nccl_name(term));
    parameter.prior = prior;
    parameter.spread = spread;
    for (const NcclNetwork network : networks) parameter.networks.push_back({network, term});
    parameter.below_one =
        term == NetworkTerm::kEfficiency || term == NetworkTerm::kTreeEfficiency || term == NetworkTerm::kP2pEfficiency;
    out.push_back(std::move(parameter));
  }

  void harness(std::string name, double NcclConstants::*value, double prior, bool last) {
    CollectiveParameter parameter;
    parameter.name = "harness." + std::move(name);
    parameter.prior = prior;
    parameter.harness = value;
    parameter.last = last;
    out.push_back(std::move(parameter));
  }

  std::vector<CollectiveParameter> out;
};

void ring_parameters(Builder& b) {
  b.gpus({kAmpere}, GpuTerm::kStart, 7.5);
  b.gpus({kHopper, kCdna}, GpuTerm::kStart, 4.4);
  b.gpus({kBlackwell}, GpuTerm::kStart, 10, 0.5);  // NCCL's own bases of Blackwell are 6 us above Hopper's
  b.pair(GpuTerm::kLlStep, 1.05, 0.83);
  b.pair(GpuTerm::kLlRamp, 1.5, 0.5);
  b.pair(GpuTerm::kLlBlocks, 1.5, 0.5);
  b.pair(GpuTerm::kLlCopyStep, 0.4, 0.2);
  b.gpus(kEvery, GpuTerm::kLlHidden, 0.25);
  b.gpus(kEvery, GpuTerm::kLlCopy, 0.8);
  b.pair(GpuTerm::kLl128Start, 11, 5);
  b.pair(GpuTerm::kLl128Step, 1.05, 1.4);
  b.pair(GpuTerm::kLl128Efficiency, 0.64, 0.85);
  b.pair(GpuTerm::kSimpleStart, 14.6, 8.9);
  b.pair(GpuTerm::kSimpleStep, 6.9, 2.8);
  b.gpus(kEvery, GpuTerm::kSimpleLockstep, 0.4);
  b.gpus(kEvery, GpuTerm::kSimpleDrift, 1);
  b.pair(GpuTerm::kReduceCopy, 0.3, 0.2);
  b.pair(GpuTerm::kGatherCopy, 0.4, 0.25);
  b.pair(GpuTerm::kScatterCopy, 0.3, 0.3);
}

void nvls_and_tree_parameters(Builder& b) {
  b.gpus(kEvery, GpuTerm::kNvlsStart, 5);
  b.gpus(kEvery, GpuTerm::kNvlsSync, 4.8);
  b.gpus(kEvery, GpuTerm::kNvlsFill, 1.85);
  b.gpus({kHopper, kAmpere, kCdna}, GpuTerm::kNvlsEfficiency, 1.4);
  b.gpus({kBlackwell}, GpuTerm::kNvlsEfficiency, 1.3, kFirm);
  b.gpus(kEvery, GpuTerm::kTreeStep, 3.2);
  b.gpus(kEvery, GpuTerm::kTreeLlRate, 9);
  b.gpus(kEvery, GpuTerm::kTreeChunkRate, 14, 0.5);
  b.gpus(kEvery, GpuTerm::kNvlsTreeFill, 2.5);
}

void p2p_parameters(Builder& b) {
  b.pair(GpuTerm::kP2pLl, 3.2, 1.9);
  b.pair(GpuTerm::kP2pLlRate, 2.5, 6.3);
  b.pair(GpuTerm::kP2pSimple, 8, 6);
  b.pair(GpuTerm::kP2pPeer, 0.3, 0.15);
  // A block keeps as many bytes in flight as its generation's links need: the rates go with the links.
  b.gpus(kEvery, GpuTerm::kP2pAloneRate, 25, kFirm);
  for (GpuSlot& slot : b.out.back().gpus) slot.factor = nvlink_ratio(slot.gpu);
  b.gpus(kEvery, GpuTerm::kP2pBothShare, 0.75, kFirm);
  b.gpus(kEvery, GpuTerm::kP2pEfficiency, 1, kFirm);
  b.gpus(kEvery, GpuTerm::kP2pMemoryPasses, 2);
}

struct NetworkPrior {
  std::vector<NcclNetwork> networks;
  double ll_hop;
  double ll128_hop;
  double simple_hop;
  double efficiency;
  double tree_efficiency;
};

void network_parameters(Builder& b) {
  const std::vector<NetworkPrior> priors = {{kRdma, 8, 10, 6, 0.96, 0.96},
                                            {{kEfa1}, 81, 90, 90, 0.8, 0.8},
                                            {{kEfa2}, 32, 37, 37, 0.9, 0.9},
                                            {{kTcpxo}, 57, 70, 79, 0.93, 0.9},
                                            {{kTcpx}, 650, 650, 650, 0.6, 0.6}};
  for (const NetworkPrior& prior : priors) {
    b.networks(prior.networks, NetworkTerm::kLlHop, prior.ll_hop);
    b.networks(prior.networks, NetworkTerm::kLl128Hop, prior.ll128_hop);
    b.networks(prior.networks, NetworkTerm::kSimpleHop, prior.simple_hop);
    b.networks(prior.networks, NetworkTerm::kLlShare, 0.125);
    b.networks(prior.networks, NetworkTerm::kTreeLlShare, 0.1);
    b.networks(prior.networks, NetworkTerm::kSimpleStart, 10);
    b.networks(prior.networks, NetworkTerm::kNvlsTreeStart, 14);
    b.networks(prior.networks, NetworkTerm::kNvlsTreeSync, 6.6);
    b.networks(prior.networks, NetworkTerm::kEfficiency, prior.efficiency);
    b.networks(prior.networks, NetworkTerm::kTreeEfficiency, prior.tree_efficiency);
  }
  b.networks(kAllNetworks, NetworkTerm::kP2pEfficiency, 0.75);
}

// Two GPUs take 6 us for the shortest call. 512 B a channel are eight cache lines, of about 0.1 us together if the
// processor overlaps them; were each waited for it would be five times that.
void harness_parameters(Builder& b) {
  b.harness("pytorch_us", &NcclConstants::pytorch_us, 20, false);
  b.harness("launch_us", &NcclConstants::launch_us, 6, true);
  b.harness("launch_channel_us", &NcclConstants::launch_channel_us, 0.1, true);
}

std::vector<CollectiveParameter> build() {
  Builder builder;
  ring_parameters(builder);
  nvls_and_tree_parameters(builder);
  p2p_parameters(builder);
  network_parameters(builder);
  harness_parameters(builder);
  return std::move(builder.out);
}

}  // namespace

const std::vector<CollectiveParameter>& collective_parameters() {
  static const std::vector<CollectiveParameter> parameters = build();
  return parameters;
}

double value_at(const CollectiveParameter& parameter, double place) {
  const double value = std::exp(place);
  return parameter.below_one ? value / (1 + value) : value;
}

double place_of(const CollectiveParameter& parameter, double value) {
  return parameter.below_one ? std::log(value / (1 - value)) : std::log(value);
}

NcclConstants constants_of(const Eigen::VectorXd& places) {
  const std::vector<CollectiveParameter>& parameters = collective_parameters();
  LH_ASSERT(places.size() == static_cast<Eigen::Index>(parameters.size()), "{} values", places.size());
  NcclConstants out;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const double value = value_at(parameters[i], places[static_cast<Eigen::Index>(i)]);
    for (const GpuSlot& slot : parameters[i].gpus) {
      out.gpus[static_cast<std::size_t>(slot.gpu)][static_cast<std::size_t>(slot.term)] = slot.factor * value;
    }
    for (const NetworkSlot& slot : parameters[i].networks) {
      out.networks[static_cast<std::size_t>(slot.network)][static_cast<std::size_t>(slot.term)] = value;
    }
    if (parameters[i].harness != nullptr) out.*parameters[i].harness = value;
  }
  return out;
}

Eigen::VectorXd prior_places() {
  const std::vector<CollectiveParameter>& parameters = collective_parameters();
  Eigen::VectorXd out(static_cast<Eigen::Index>(parameters.size()));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    out[static_cast<Eigen::Index>(i)] = place_of(parameters[i], parameters[i].prior);
  }
  return out;
}

}  // namespace longhaul
