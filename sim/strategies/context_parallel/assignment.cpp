#include "sim/strategies/context_parallel/assignment.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "sim/strategies/context_parallel/plan_json.h"
#include "sim/strategies/step/replicas.h"
#include "sim/strategies/strategy.h"

namespace longhaul {
namespace {

void check_shard(const Json& shard, const std::string& file, const std::string& path, Errors& errors) {
  JsonReader reader(shard, file, path, errors);
  if (reader.has("padding")) {
    reader.required_integer("padding", 1, kMostTokens);
  } else {
    reader.required_integer("document", 0, std::numeric_limits<DocumentId>::max());
    reader.required_integer("first_token", 0, kMostTokens);
    reader.required_integer("tokens", 1, kMostTokens);
  }
  reader.finish();
}

Shard shard_of(const Json& json, const std::map<DocumentId, std::int64_t>& tokens_of) {
  if (json.contains("padding")) return padding_shard(json["padding"].get<std::int64_t>());
  const auto document = json["document"].get<DocumentId>();
  const auto found = tokens_of.find(document);
  return {document, json["first_token"].get<std::int64_t>(), json["tokens"].get<std::int64_t>(),
          found == tokens_of.end() ? 0 : found->second};
}

// Whether the shards of all ranks are every token of the documents once.
tl::expected<void, std::string> check_tokens(const CpPlan& plan, const std::map<DocumentId, std::int64_t>& tokens_of) {
  std::map<DocumentId, std::vector<std::pair<std::int64_t, std::int64_t>>> held;  // from, to
  for (const std::vector<Shard>& rank : plan.ranks) {
    for (const Shard& shard : rank) {
      if (shard.is_padding()) continue;
      if (!tokens_of.contains(shard.document)) {
        return tl::unexpected(fmt::format("it holds document {}, which the micro-batch has not", shard.document));
      }
      held[shard.document].emplace_back(shard.prefix, shard.prefix + shard.tokens);
    }
  }
  for (const auto& [document, tokens] : tokens_of) {
    std::int64_t end = 0;
    std::vector<std::pair<std::int64_t, std::int64_t>>& ranges = held[document];
    std::sort(ranges.begin(), ranges.end());
    for (const auto& [from, to] : ranges) {
      if (from < end) return tl::unexpected(fmt::format("token {} of document {} stands twice", from, document));
      if (from > end) break;
      end = to;
    }
    if (end > tokens) return tl::unexpected(fmt::format("document {} has {} tokens, not {}", document, tokens, end));
    if (end < tokens) return tl::unexpected(fmt::format("no rank holds token {} of document {}", end, document));
  }
  return {};
}

tl::expected<CpPlan, std::string> assigned_plan(const Json& json, int ranks,
                                                const std::map<DocumentId, std::int64_t>& tokens_of) {
  CpPlan plan;
  if (json["ranks"].size() != static_cast<std::size_t>(ranks)) {
    return tl::unexpected(fmt::format("it has {} ranks, the layout {}", json["ranks"].size(), ranks));
  }
  for (const Json& shards : json["ranks"]) {
    std::vector<Shard>& rank = plan.ranks.emplace_back();
    std::int64_t rows = 0;
    for (const Json& shard : shards) {
      rank.push_back(shard_of(shard, tokens_of));
      rows += rank.back().tokens;
    }
    if (plan.ranks.size() == 1) plan.padded_tokens_per_rank = rows;
    if (rows != plan.padded_tokens_per_rank) {
      return tl::unexpected(fmt::format("rank {} has {} rows, rank 0 {}; add {{\"padding\": ROWS}}",
                                        plan.ranks.size() - 1, rows, plan.padded_tokens_per_rank));
    }
  }
  if (const auto complete = check_tokens(plan, tokens_of); !complete) return tl::unexpected(complete.error());
  if (!json.contains("per_doc")) return plan;
  plan.per_doc_documents = json["per_doc"].get<std::vector<DocumentId>>();
  for (const DocumentId document : plan.per_doc_documents) {
    if (!tokens_of.contains(document)) {
      return tl::unexpected(fmt::format("\"per_doc\" names document {}, which the micro-batch has not", document));
    }
  }
  return plan;
}

}  // namespace

void check_assignment(const Json& assignment, const std::string& file, const std::string& path, Errors& errors) {
  for_each_element(assignment, file, path, "micro-batches", errors, [&](const Json& batch, const std::string& at) {
    JsonReader reader(batch, file, at, errors);
    if (const Json* per_doc = reader.find("per_doc")) {
      for_each_element(*per_doc, file, reader.child_path("per_doc"), "documents", errors,
                       [&](const Json& document, const std::string& place) {
                         if (document.is_number_integer() && document.get<std::int64_t>() >= 0) return;
                         errors.push_back({file, place, "is " + describe(document), "the number of a document", ""});
                       });
    }
    if (const Json* ranks = reader.required("ranks", "an array of what each rank holds")) {
      for_each_element(
          *ranks, file, reader.child_path("ranks"), "ranks", errors, [&](const Json& rank, const std::string& of) {
            for_each_element(rank, file, of, "shards", errors, [&](const Json& shard, const std::string& place) {
              check_shard(shard, file, place, errors);
            });
          });
    }
    reader.finish();
  });
}

tl::expected<std::vector<CpPlan>, std::string> assigned_plans(const Json& assignment, const StrategyRequest& request) {
  const std::int64_t per_micro_batch = request.training.micro_batch_sequences;
  const int chunks = micro_batch_count(*request.batch, request.degrees.dp, per_micro_batch);
  const auto wanted = static_cast<std::size_t>(chunks) * static_cast<std::size_t>(request.degrees.dp);
  if (assignment.size() != wanted) {
    return tl::unexpected(fmt::format("the assignment is of {} micro-batches, the step has {} (all replicas)",
                                      assignment.size(), wanted));
  }
  std::vector<CpPlan> plans;
  for (std::size_t i = 0; i < wanted; ++i) {
    std::map<DocumentId, std::int64_t> tokens_of;
    const int chunk = static_cast<int>(i) / request.degrees.dp, replica = static_cast<int>(i) % request.degrees.dp;
    for (const std::int32_t sequence : micro_batch(chunk, replica, request.degrees.dp, per_micro_batch)) {
      for (const PlannedDocument& document :
           sequence_documents(*request.batch, request.batch->sequences[static_cast<std::size_t>(sequence)])) {
        tokens_of[document.document] = document.tokens;
      }
    }
    auto plan = assigned_plan(assignment[i], request.degrees.cp, tokens_of);
    if (!plan) return tl::unexpected(fmt::format("the assignment of micro-batch {}: {}", i, plan.error()));
    plans.push_back(std::move(*plan));
  }
  return plans;
}

Json assignment_of(const std::vector<CpPlan>& plans) {
  Json assignment = Json::array();
  for (const CpPlan& plan : plans) {
    Json ranks = Json::array();
    for (const std::vector<Shard>& rank : plan.ranks) ranks.push_back(shards_json(rank));
    assignment.push_back({{"per_doc", plan.per_doc_documents}, {"ranks", std::move(ranks)}});
  }
  return assignment;
}

}  // namespace longhaul
