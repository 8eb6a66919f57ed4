// Fits the constants of NCCL's time model to measured tables.
//
// Minimises sum_i 2 (sqrt(1 + (r_i / s)^2) - 1) + sum_j ((x_j - prior_j) / spread_j)^2 with r_i = log(predicted /
// measured) of every row, s = 5 %, and x_j the places of the parameters: a soft L1 loss, so that single wild rows
// do not rule. Levenberg-Marquardt (Eigen) with forward differences. The outcome depends on nothing but its arguments.
//
// Twice: first every parameter but those that are `last`, to the rows whose harness does not show (of the table
// "fitted to the harness alone" none); then, with these held, the `last` ones to the others. So what one thread needs
// to launch is found from its own tables, and they move nothing else.
#pragma once

#include <Eigen/Core>
#include <string>
#include <vector>

#include "validate/fit/collectives/collective_parameters.h"
#include "validate/fit/collectives/collective_tables.h"

namespace longhaul {

struct CollectiveFit {
  Eigen::VectorXd places;  // of the parameters
  NcclConstants constants;
  double cost = 0;  // the sum above, over all rows
};

// `rows` may be empty: the prior comes out. `start` is where the search begins.
CollectiveFit fit_collectives(const std::vector<const CollectiveMeasurement*>& rows, const Eigen::VectorXd& start);

// Rows of all tables that are fitted, wholly or to the harness alone, without those of table `left_out` (its index; -1
// leaves none out).
std::vector<const CollectiveMeasurement*> fitted_rows(const std::vector<CollectiveTable>& tables, int left_out = -1);

// The text of topologies/nccl.json. The names of the fitted tables are listed in it.
std::string write_nccl_constants(const NcclConstants& constants, const std::vector<CollectiveTable>& tables);

}  // namespace longhaul
