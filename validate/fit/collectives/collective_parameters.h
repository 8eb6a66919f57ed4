// What the fit of the collectives may move: one parameter drives one or several constants that hardware shares.
//
// A parameter is searched at its logarithm, so constants stay above zero; an efficiency of a NIC, which cannot pass 1,
// at the logarithm of value / (1 - value). Its prior is NCCL's own table where that has a value, else an estimate of
// the same order; `spread` is the standard deviation at that place. Constants of hardware without tables take the
// parameters of the nearest hardware, and the shipped file says so.
#pragma once

#include <Eigen/Core>
#include <string>
#include <vector>

#include "sim/network/nccl/constants.h"

namespace longhaul {

struct GpuSlot {
  NcclGpu gpu;
  GpuTerm term;
  double factor = 1;  // of the parameter
};
struct NetworkSlot {
  NcclNetwork network;
  NetworkTerm term;
};

struct CollectiveParameter {
  std::string name;  // "hopper.ll_step_us"
  double prior = 1;
  double spread = 1;
  std::vector<GpuSlot> gpus;
  std::vector<NetworkSlot> networks;
  bool below_one = false;
  double NcclConstants::*harness = nullptr;  // drives this one
  bool last = false;                         // fitted by itself when all others stand (collective_fit.h)
};

const std::vector<CollectiveParameter>& collective_parameters();

double value_at(const CollectiveParameter& parameter, double place);
double place_of(const CollectiveParameter& parameter, double value);
// Constants from the places of all parameters, and the places of the priors.
NcclConstants constants_of(const Eigen::VectorXd& places);
Eigen::VectorXd prior_places();

}  // namespace longhaul
