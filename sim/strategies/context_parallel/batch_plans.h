// Context-parallel plans of a whole batch: one for each micro-batch of each replica.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "sim/strategies/context_parallel/modelled.h"

namespace longhaul {

using SequencePlanner =
    std::function<tl::expected<CpPlan, std::string>(std::span<const PlannedDocument>, std::int64_t ranks)>;

// Tokens of each rank where all have as many, rounded up; at least 1.
std::int64_t even_share(std::span<const PlannedDocument> documents, std::int64_t ranks);

// Why `ranks` cannot share these documents whatever the planner: fewer tokens than ranks.
std::optional<std::string> sharing_refusal(std::span<const PlannedDocument> documents, std::int64_t ranks);
// The planner's plan, or the reason why `ranks` cannot share these documents: the planner's, or fewer tokens than
// ranks.
tl::expected<CpPlan, std::string> plan_shared(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                              const SequencePlanner& planner);
// By micro-batch (chunk x dp + replica): the plans of its sequences, one after the other. The error is plan_shared's.
tl::expected<std::vector<CpPlan>, std::string> plan_batch(const StrategyRequest& request,
                                                          const SequencePlanner& planner);

// The same plans for `longhaul plan`. Rows and bytes gathered follow from `traffic`: all rows of a rank, B_max, or the
// most that one rank needs.
nlohmann::ordered_json plans_json(const std::vector<CpPlan>& plans, const StrategyRequest& request, CpTraffic traffic);

}  // namespace longhaul
