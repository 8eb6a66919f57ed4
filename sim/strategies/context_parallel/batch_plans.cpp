#include "sim/strategies/context_parallel/batch_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sim/core/integers.h"
#include "sim/strategies/context_parallel/plan_json.h"
#include "sim/strategies/step/replicas.h"

namespace longhaul {

namespace {

std::int64_t tokens_of(std::span<const PlannedDocument> documents) {
  std::int64_t tokens = 0;
  for (const PlannedDocument& document : documents) tokens += document.tokens;
  return tokens;
}

}  // namespace

std::int64_t even_share(std::span<const PlannedDocument> documents, std::int64_t ranks) {
  return std::max<std::int64_t>(1, ceil_div(tokens_of(documents), ranks));
}

std::optional<std::string> sharing_refusal(std::span<const PlannedDocument> documents, std::int64_t ranks) {
  const std::int64_t tokens = tokens_of(documents);
  if (documents.empty() || tokens >= ranks) return std::nullopt;
  return fmt::format("{} ranks cannot share a sequence of {} tokens", ranks, tokens);
}

tl::expected<CpPlan, std::string> plan_shared(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                              const SequencePlanner& planner) {
  if (auto reason = sharing_refusal(documents, ranks)) return tl::unexpected(*reason);
  return planner(documents, ranks);
}

tl::expected<std::vector<CpPlan>, std::string> plan_batch(const StrategyRequest& request,
                                                          const SequencePlanner& planner) {
  std::vector<CpPlan> plans;
  const std::int64_t per_micro_batch = request.training.micro_batch_sequences;
  const int chunks = micro_batch_count(*request.batch, request.degrees.dp, per_micro_batch);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int replica = 0; replica < request.degrees.dp; ++replica) {
      std::vector<CpPlan> of_sequences;
      for (const std::int32_t sequence : micro_batch(chunk, replica, request.degrees.dp, per_micro_batch)) {
        const auto documents =
            sequence_documents(*request.batch, request.batch->sequences[static_cast<std::size_t>(sequence)]);
        tl::expected<CpPlan, std::string> plan = plan_shared(documents, request.degrees.cp, planner);
        if (!plan) return tl::unexpected(plan.error());
        of_sequences.push_back(std::move(*plan));
      }
      plans.push_back(concatenate(of_sequences));
    }
  }
  return plans;
}

nlohmann::ordered_json plans_json(const std::vector<CpPlan>& plans, const StrategyRequest& request, CpTraffic traffic) {
  auto json = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const CpLoads loads = cp_loads(plans[i]);
    const std::int64_t rows = traffic == CpTraffic::kNonlast ? loads.nonlast_max : plans[i].padded_tokens_per_rank;
    auto entry = nlohmann::ordered_json::object();
    entry["micro_batch"] = i / static_cast<std::size_t>(request.degrees.dp);
    entry["replica"] = i % static_cast<std::size_t>(request.degrees.dp);
    entry["sequences"] = micro_batch(static_cast<int>(i) / request.degrees.dp, static_cast<int>(i) % request.degrees.dp,
                                     request.degrees.dp, request.training.micro_batch_sequences);
    nlohmann::ordered_json& plan = entry["plan"] = plan_json(plans[i], rows, request.model.kv_width(), 2);
    if (traffic == CpTraffic::kNeed) {  // no gather: what the rank with most receives
      plan["gathered_rows_per_rank"] = loads.need_max;
      plan["gather_bytes_per_rank_layer"] = 4 * loads.need_max * request.model.kv_width();
    }
    json.push_back(std::move(entry));
  }
  return json;
}

}  // namespace longhaul
