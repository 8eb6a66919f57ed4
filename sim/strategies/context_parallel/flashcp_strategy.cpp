// flashcp: Algorithm 1 and the choices that the paper leaves open, as options of a study.
#include <algorithm>
#include <array>

#include "sim/strategies/context_parallel/assignment.h"
#include "sim/strategies/context_parallel/batch_plans.h"
#include "sim/strategies/context_parallel/flashcp.h"
#include "sim/strategies/context_parallel/framework_step.h"
#include "sim/strategies/context_parallel/gather_step.h"
#include "sim/strategies/families.h"
#include "sim/strategies/step/copies_option.h"

namespace longhaul {
namespace {

constexpr std::int64_t kLeastTrials = 500;

// Defaults: the plan of least modelled time among those within the imbalance limit, of both cut rules.
struct FlashCpPolicy {
  FlashCpOptions options;
  FlashCpSearch search;
  bool by_time = true;  // false: the first plan within the limit, by one cut rule (Algorithm 1 as printed)
  CpTraffic traffic = CpTraffic::kNonlast;
  bool overlap = false;
};

FlashCpPolicy policy_of(const StrategyRequest& request) {
  const Json& given = request.options;
  FlashCpPolicy policy;
  policy.options.imbalance_limit = given.value("imbalance_limit", policy.options.imbalance_limit);
  policy.options.count_per_doc_pairs = given.value("count_per_doc_pairs", policy.options.count_per_doc_pairs);
  const std::string rule = given.value("cut_rule", "");
  if (rule == "equalise-swap") policy.options.cut_rule = FlashCutRule::kEqualiseSwap;
  if (rule == "naive") policy.options.cut_rule = FlashCutRule::kNaive;
  if (!rule.empty()) policy.search.rules = {policy.options.cut_rule};
  if (given.value("split", "anywhere") == "node") policy.options.ranks_per_node = request.gpus_per_node;
  policy.by_time = given.value("choose", "time") == "time";
  policy.search.limit_binds = given.value("per_doc", "limit") == "limit";
  if (given.value("exchange", "padded") == "exact") policy.traffic = CpTraffic::kNeed;
  policy.overlap = given.value("overlap", false);
  // Of the paper's own exchange; elsewhere the largest buffer is not what is waited for, or a word of the user's rules.
  policy.search.save_as_naive =
      rule.empty() && policy.options.ranks_per_node == 0 && !policy.overlap && policy.traffic == CpTraffic::kNonlast;
  // A step's sequences share one budget, so that planning time does not grow with them.
  const auto sequences = static_cast<std::int64_t>(request.batch->sequences.size());
  policy.search.refine_trials =
      std::max(kLeastTrials, policy.search.refine_trials / std::max<std::int64_t>(1, sequences));
  return policy;
}

// Keys that say how a plan is made; beside a plan that is given they would say nothing.
constexpr std::array<const char*, 6> kPlannerKeys = {"imbalance_limit", "cut_rule", "count_per_doc_pairs",
                                                     "choose",          "per_doc",  "split"};

tl::expected<std::vector<CpPlan>, std::string> plans_of(const StrategyRequest& request, const FlashCpPolicy& policy) {
  if (request.options.contains("assignment")) return assigned_plans(request.options["assignment"], request);
  const CpClock clock(request);
  const CpScore score = [&](const CpPlan& plan) { return clock.layer_seconds(plan, policy.traffic, policy.overlap); };
  return plan_batch(request, [&](std::span<const PlannedDocument> documents, std::int64_t ranks) {
    // Without a device there is no time to compare: Algorithm 1.
    if (!policy.by_time || !clock.known()) return plan_flashcp(documents, ranks, policy.options);
    return plan_flashcp_by_time(documents, ranks, policy.options, policy.search, score);
  });
}

Planned plan(const StrategyRequest& request) {
  const FlashCpPolicy policy = policy_of(request);
  auto plans = plans_of(request, policy);
  if (!plans) return tl::unexpected(plans.error());
  const auto pinned = [options = request.options, plans = *plans] {
    Json fixed = options;
    for (const char* key : kPlannerKeys) fixed.erase(key);
    fixed["assignment"] = assignment_of(plans);
    return fixed;
  };
  PlannedStep step =
      framework_copies(request)
          ? plan_framework_step(request, std::move(*plans), FrameworkStyle::kOwnRows)
          : plan_gather_step(request, std::move(*plans), sharding_aware_step(policy.traffic, policy.overlap));
  step.pinned = pinned;
  return step;
}

}  // namespace

void add_flashcp_strategy(std::vector<Strategy>& list) {
  Strategy flashcp;
  flashcp.name = "flashcp";
  flashcp.baseline = "allgather-cp";
  flashcp.family = StrategyFamily::kContext;
  flashcp.option_keys = {
      "imbalance_limit", "cut_rule", "count_per_doc_pairs", "choose", "per_doc", "exchange", "overlap",
      "split",           "copies",   "assignment"};
  flashcp.check_options = [](const Json& options, const std::string& file, const std::string& path, Errors& errors) {
    JsonReader reader(options, file, path, errors);
    reader.number("imbalance_limit", 1.0, 100.0);
    reader.choice("cut_rule", {"equalise", "equalise-swap", "naive"});
    reader.boolean("count_per_doc_pairs");
    const auto choose = reader.choice("choose", {"time", "imbalance"});
    const auto per_doc = reader.choice("per_doc", {"limit", "time"});
    const auto exchange = reader.choice("exchange", {"padded", "exact"});
    const auto overlap = reader.boolean("overlap");
    reader.choice("split", {"anywhere", "node"});
    if (const Json* assignment = reader.find("assignment")) {
      check_assignment(*assignment, file, reader.child_path("assignment"), errors);
      for (const char* key : kPlannerKeys) {
        if (reader.has(key)) reader.add_error(key, "says how to plan beside an \"assignment\"", "one of the two");
      }
    }
    if (check_copies(reader) == "framework" && (exchange == "exact" || overlap.value_or(false))) {
      reader.add_error("copies", "is \"framework\" beside an exact exchange or overlap",
                       "a padded exchange without overlap for that");
    }
    if (choose == "imbalance" && per_doc == "time") {
      reader.add_error("per_doc", "is \"time\" beside \"choose\": \"imbalance\"", "\"choose\": \"time\" for that");
    }
  };
  flashcp.plan = plan;
  list.push_back(std::move(flashcp));
}

}  // namespace longhaul
