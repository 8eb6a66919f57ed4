#include "sim/strategies/context_parallel/skrull.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/core/integers.h"
#include "sim/core/invariant.h"
#include "sim/strategies/context_parallel/batch_plans.h"
#include "sim/strategies/context_parallel/dispatch.h"
#include "sim/workload/arithmetic.h"

namespace longhaul {
namespace {

void sort_by_length(std::vector<PlannedDocument>& documents, bool longest_first) {
  std::stable_sort(documents.begin(), documents.end(), [&](const PlannedDocument& a, const PlannedDocument& b) {
    return longest_first ? a.tokens > b.tokens : a.tokens < b.tokens;
  });
}

std::int64_t tokens_of(const std::vector<PlannedDocument>& documents) {
  std::int64_t tokens = 0;
  for (const PlannedDocument& document : documents) tokens += document.tokens;
  return tokens;
}

// Shortest first, dealt in turn.
std::vector<std::vector<PlannedDocument>> interleave(const std::vector<PlannedDocument>& documents,
                                                     std::int64_t count) {
  std::vector<std::vector<PlannedDocument>> micro_batches(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < documents.size(); ++i) micro_batches[i % micro_batches.size()].push_back(documents[i]);
  return micro_batches;
}

}  // namespace

tl::expected<SkrullBatches, std::string> skrull_batches(const Batch& loaded, std::int64_t replicas, std::int64_t ranks,
                                                        std::int64_t bucket_tokens, const WlbWork& work) {
  LH_ASSERT(replicas >= 1 && ranks >= 1 && bucket_tokens >= 1, "{} replicas of {} ranks, buckets of {}", replicas,
            ranks, bucket_tokens);
  std::vector<PlannedDocument> documents;
  for (const std::int64_t tokens : loaded.documents) {
    documents.push_back({static_cast<DocumentId>(documents.size()), tokens});
  }
  sort_by_length(documents, true);
  std::vector<std::vector<PlannedDocument>> of_replica(static_cast<std::size_t>(replicas));
  std::vector<double> load(of_replica.size(), 0);
  for (const PlannedDocument& document : documents) {
    const auto least = static_cast<std::size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    of_replica[least].push_back(document);
    load[least] += work.of(document.tokens);
  }
  std::int64_t least_count = 1, most_count = static_cast<std::int64_t>(documents.size());
  for (std::vector<PlannedDocument>& of : of_replica) {
    sort_by_length(of, false);
    least_count = std::max(least_count, ceil_div(tokens_of(of), ranks * bucket_tokens));
    most_count = std::min(most_count, static_cast<std::int64_t>(of.size()));
  }
  if (most_count < least_count) {
    return tl::unexpected(fmt::format("{} documents cannot fill {} micro-batches on each of {} replicas",
                                      documents.size(), least_count, replicas));
  }
  std::string reason;
  for (std::int64_t count = least_count; count <= most_count; ++count) {
    reason.clear();
    SkrullBatches found;
    auto batch = std::make_shared<Batch>();
    batch->objective = loaded.objective;
    std::vector<std::vector<std::vector<PlannedDocument>>> dealt;
    for (const std::vector<PlannedDocument>& of : of_replica) dealt.push_back(interleave(of, count));
    for (std::size_t chunk = 0; chunk < static_cast<std::size_t>(count) && reason.empty(); ++chunk) {
      for (const auto& of : dealt) {
        const auto plan = plan_shared(of[chunk], ranks, [&](std::span<const PlannedDocument> held, std::int64_t over) {
          return plan_skrull(held, over, bucket_tokens);
        });
        if (!plan) {
          reason = plan.error();
          break;
        }
        Sequence sequence;
        for (const PlannedDocument& document : of[chunk]) {
          sequence.documents.push_back(static_cast<DocumentId>(batch->documents.size()));
          sequence.tokens += document.tokens;
          batch->documents.push_back(document.tokens);
        }
        batch->context_tokens = std::max(batch->context_tokens, sequence.tokens);
        batch->sequences.push_back(std::move(sequence));
      }
    }
    if (!reason.empty()) continue;
    double sum = 0;
    for (const double of : load) sum += of;
    found.batch = std::move(batch);
    found.micro_batches = count;
    found.imbalance = *std::max_element(load.begin(), load.end()) * static_cast<double>(replicas) / sum;
    return found;
  }
  return tl::unexpected(fmt::format("no number of micro-batches fits the documents into buckets: {}", reason));
}

tl::expected<std::string, std::string> select_skrull(StrategyRequest& request,
                                                     std::span<const std::shared_ptr<const Batch>> loaded) {
  if (request.options.value("micro_batches", "packed") != "gds") return std::string();
  const Batch& batch = *loaded.back();
  const double share = static_cast<double>(batch.context_tokens * request.training.micro_batch_sequences) /
                       static_cast<double>(request.degrees.cp);
  const std::int64_t bucket =
      request.options.value("bucket_tokens", static_cast<std::int64_t>(kSkrullRoom * share) + 1);
  const ModelShape& model = request.model;
  const auto found = skrull_batches(batch, request.degrees.dp, request.degrees.cp, bucket,
                                    {attention_forward_flops(model, 1).value, layer_matmul_flops(model, 1).value});
  if (!found) return tl::unexpected(found.error());
  request.batch = found->batch;
  request.training.micro_batch_sequences = 1;
  request.options["bucket_tokens"] = bucket;
  return fmt::format(
      "GDS: {} micro-batches a replica in buckets of {}, work of the heaviest replica over the mean {:.3f}",
      found->micro_batches, bucket, found->imbalance);
}

}  // namespace longhaul
