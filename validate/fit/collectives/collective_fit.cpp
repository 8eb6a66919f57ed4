#include "validate/fit/collectives/collective_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <unsupported/Eigen/NonLinearOptimization>

#include "sim/core/json.h"

namespace longhaul {
namespace {

constexpr double kScale = 0.05;
constexpr double kDifference = 1e-10;  // squared relative step of the forward differences
constexpr int kMostEvaluations = 6000;
constexpr double kCostTolerance = 1e-8;
constexpr double kStepTolerance = 1e-7;

// The residuals of some rows over some parameters, the others held, in the form that Eigen's solver wants.
struct Residuals {
  using Scalar = double;
  enum { InputsAtCompileTime = Eigen::Dynamic, ValuesAtCompileTime = Eigen::Dynamic };
  using InputType = Eigen::VectorXd;
  using ValueType = Eigen::VectorXd;
  using JacobianType = Eigen::MatrixXd;

  std::vector<const CollectiveMeasurement*> rows;
  std::vector<Eigen::Index> free;  // parameters
  Eigen::VectorXd places;          // of all parameters

  int inputs() const { return static_cast<int>(free.size()); }
  int values() const { return static_cast<int>(rows.size()) + inputs(); }

  int operator()(const Eigen::VectorXd& x, Eigen::VectorXd& out) const {
    const NcclConstants constants = constants_of(places_at(x));
    Eigen::Index i = 0;
    for (const CollectiveMeasurement* row : rows) {
      const double predicted = predict(constants, *row).total_us();
      const double error = std::log(predicted / row->measured_us) / kScale;
      out[i++] = std::copysign(std::sqrt(2 * (std::sqrt(1 + error * error) - 1)), error);
    }
    Eigen::Index j = 0;
    for (const Eigen::Index at : free) {
      const CollectiveParameter& parameter = collective_parameters()[static_cast<std::size_t>(at)];
      out[i++] = (x[j++] - place_of(parameter, parameter.prior)) / parameter.spread;
    }
    return 0;
  }

  Eigen::VectorXd places_at(const Eigen::VectorXd& x) const {
    Eigen::VectorXd out = places;
    out(free) = x;
    return out;
  }
};

template <class Group, class Term>
Json group_json(const NcclConstants& constants, Group group, std::size_t count) {
  Json out = Json::object();
  for (std::size_t i = 0; i < count; ++i) {
    const Term term = static_cast<Term>(i);
    out[std::string(nccl_name(term))] = constants.of(group, term);
  }
  return out;
}

// Six digits are far finer than the fit.
double rounded(double value) {
  const double digits = std::pow(10.0, 5 - std::floor(std::log10(value)));
  return std::round(value * digits) / digits;
}

NcclConstants rounded(NcclConstants constants) {
  for (auto& group : constants.gpus) {
    for (double& value : group) value = rounded(value);
  }
  for (auto& group : constants.networks) {
    for (double& value : group) value = rounded(value);
  }
  for (double* value : {&constants.pytorch_us, &constants.launch_us, &constants.launch_channel_us}) {
    *value = rounded(*value);
  }
  return constants;
}

// Moves the parameters that are (not) `last` from where `places` has them; returns the cost over them.
double fit_part(const std::vector<const CollectiveMeasurement*>& rows, bool last, Eigen::VectorXd& places) {
  Residuals residuals;
  residuals.places = places;
  for (const CollectiveMeasurement* row : rows) {
    if (row->harness_only == last) residuals.rows.push_back(row);
  }
  for (std::size_t i = 0; i < collective_parameters().size(); ++i) {
    if (collective_parameters()[i].last == last) residuals.free.push_back(static_cast<Eigen::Index>(i));
  }
  Eigen::NumericalDiff<Residuals> differences(residuals, kDifference);
  Eigen::LevenbergMarquardt<Eigen::NumericalDiff<Residuals>> solver(differences);
  solver.parameters.maxfev = kMostEvaluations;
  solver.parameters.ftol = kCostTolerance;
  solver.parameters.xtol = kStepTolerance;
  Eigen::VectorXd x = places(residuals.free);
  solver.minimize(x);
  places = residuals.places_at(x);
  Eigen::VectorXd values(residuals.values());
  residuals(x, values);
  return values.squaredNorm();
}

}  // namespace

CollectiveFit fit_collectives(const std::vector<const CollectiveMeasurement*>& rows, const Eigen::VectorXd& start) {
  CollectiveFit fit;
  fit.places = start;
  fit.cost = fit_part(rows, false, fit.places);
  fit.cost += fit_part(rows, true, fit.places);
  fit.constants = constants_of(fit.places);
  return fit;
}

std::vector<const CollectiveMeasurement*> fitted_rows(const std::vector<CollectiveTable>& tables, int left_out) {
  std::vector<const CollectiveMeasurement*> out;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    if (static_cast<int>(t) == left_out || !tables[t].not_fitted.empty()) continue;
    for (const CollectiveMeasurement& row : tables[t].rows) out.push_back(&row);
  }
  return out;
}

std::string write_nccl_constants(const NcclConstants& exact, const std::vector<CollectiveTable>& tables) {
  const NcclConstants constants = rounded(exact);
  Json gpus = Json::object();
  for (std::size_t i = 0; i < kNcclGpuCount; ++i) {
    const auto gpu = static_cast<NcclGpu>(i);
    gpus[std::string(nccl_name(gpu))] = group_json<NcclGpu, GpuTerm>(constants, gpu, kGpuTermCount);
  }
  Json networks = Json::object();
  for (std::size_t i = 0; i < kNcclNetworkCount; ++i) {
    const auto network = static_cast<NcclNetwork>(i);
    networks[std::string(nccl_name(network))] =
        group_json<NcclNetwork, NetworkTerm>(constants, network, kNetworkTermCount);
  }
  std::vector<std::string> names;
  std::vector<std::string> launched;
  for (const CollectiveTable& table : tables) {
    if (table.fitted()) names.push_back(table.name);
    if (!table.harness_only.empty()) launched.push_back(table.name);
  }
  const Json sources = {
      {"ampere", "fit to the A100 tables, NCCL 2.27 and others"},
      {"hopper", "fit to the H100 and H200 tables, NCCL 2.29 and others"},
      {"blackwell",
       "Hopper's constants but start_us and nvls_efficiency, which are fitted to one B200 and one GB200 "
       "table: weakly known"},
      {"cdna", "Hopper's constants stand in: no RCCL table of one node was fitted"},
      {"infiniband",
       "fit to the tables over InfiniBand and RoCE; sends between domains start and hop as Simple and LL of rings and "
       "trees do (derived: no table times short ones), and p2p_efficiency is fitted to one all-to-all of MI355X"},
      {"roce", "InfiniBand's constants"},
      {"efa-1", "fit to one table of P4de; what no table shows keeps its prior"},
      {"efa-2", "fit to one table of P5; what no table shows keeps its prior"},
      {"tcpx", "fit to two tables of A3 High that contradict each other by up to a third"},
      {"tcpxo", "fit to three tables of A3 Mega"},
      {"ethernet", "InfiniBand's constants stand in"},
      {"harness", fmt::format("pytorch_us: fit to the PyTorch tables of H200 and B200; launch_us, launch_channel_us: "
                              "fit to {} alone, with all else held",
                              fmt::join(launched, ", "))}};
  const Json json = {{"schema", "nccl/1"},
                     {"description", "Constants of NCCL's time model, written by longhaul-fit collectives"},
                     {"sources", sources},
                     {"tables", names},
                     {"gpus", gpus},
                     {"networks", networks},
                     {"harness",
                      {{"pytorch_us", constants.pytorch_us},
                       {"launch_us", constants.launch_us},
                       {"launch_channel_us", constants.launch_channel_us}}}};
  return json.dump(2) + "\n";
}

}  // namespace longhaul
