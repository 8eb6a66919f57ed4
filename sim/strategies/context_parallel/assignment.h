// A context-parallel plan given in a study instead of one that a planner makes: `"assignment"`.
//
// An array with an entry for each micro-batch of each replica, in the order of `longhaul plan`:
//   {"per_doc": [DOCUMENT, ...], "ranks": [[{"document", "first_token", "tokens"} | {"padding"}, ...], ...]}
// What a rank holds stands in local order, in tokens; documents are numbered as in the batch. `per_doc` names documents
// that all ranks keep one common copy list of (flashcp.md 1.2): speed alone, the numbers do not depend on it.
// Uses: planners of one's own, and runs that were measured: a plan of least modelled time changes with the model.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "sim/core/error.h"
#include "sim/core/json.h"
#include "sim/strategies/context_parallel/plan.h"
#include "sim/strategies/strategy.h"

namespace longhaul {

// Adds an error for each value of the wrong kind; `path` is that of the array.
void check_assignment(const Json& assignment, const std::string& file, const std::string& path, Errors& errors);

// A checked assignment for a batch. The error is a reason: another number of micro-batches or ranks than the layout
// has, a document that the micro-batch has not, tokens that stand on no rank or on two, ranks of unequal rows.
tl::expected<std::vector<CpPlan>, std::string> assigned_plans(const Json& assignment, const StrategyRequest& request);

// The assignment that gives these plans.
Json assignment_of(const std::vector<CpPlan>& plans);

}  // namespace longhaul
