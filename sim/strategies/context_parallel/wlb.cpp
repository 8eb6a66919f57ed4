#include "sim/strategies/context_parallel/wlb.h"

#include <algorithm>

#include "sim/core/integers.h"
#include "sim/core/invariant.h"
#include "sim/strategies/context_parallel/batch_plans.h"
#include "sim/strategies/step/replicas.h"
#include "sim/workload/arithmetic.h"

namespace longhaul {
namespace {

constexpr std::int64_t kTile = 128;
constexpr std::int64_t kMostQueues = 8;

void sort_longest_first(std::vector<PlannedDocument>& documents) {
  std::stable_sort(documents.begin(), documents.end(),
                   [](const PlannedDocument& a, const PlannedDocument& b) { return a.tokens > b.tokens; });
}

WlbBins empty_bins(std::size_t count) {
  return {std::vector<std::vector<PlannedDocument>>(count), std::vector<std::int64_t>(count, 0),
          std::vector<double>(count, 0)};
}

void put(WlbBins& bins, std::size_t bin, const PlannedDocument& document, const WlbWork& work) {
  bins.bins[bin].push_back(document);
  bins.tokens[bin] += document.tokens;
  bins.work[bin] += work.of(document.tokens);
}

std::size_t least_work(const WlbBins& bins) {
  return static_cast<std::size_t>(std::min_element(bins.work.begin(), bins.work.end()) - bins.work.begin());
}

// False if it fits neither the bin of least work nor the shortest one.
bool try_put(WlbBins& bins, const PlannedDocument& document, std::int64_t most_tokens, const WlbWork& work) {
  const auto shortest =
      static_cast<std::size_t>(std::min_element(bins.tokens.begin(), bins.tokens.end()) - bins.tokens.begin());
  for (const std::size_t bin : {least_work(bins), shortest}) {
    if (bins.tokens[bin] + document.tokens > most_tokens) continue;
    put(bins, bin, document, work);
    return true;
  }
  return false;
}

// Forward FLOPs of a layer.
WlbWork work_of(const ModelShape& model) {
  return {attention_forward_flops(model, 1).value, layer_matmul_flops(model, 1).value};
}

}  // namespace

double WlbWork::of(std::int64_t tokens) const {
  return per_pair * static_cast<double>(causal_pairs(tokens)) + per_token * static_cast<double>(tokens);
}

WlbPacker::WlbPacker(std::int64_t bins, std::int64_t most_tokens, std::vector<std::int64_t> thresholds, WlbWork work)
    : most_tokens_(most_tokens),
      bins_(static_cast<std::size_t>(bins)),
      thresholds_(std::move(thresholds)),
      work_(work),
      queues_(thresholds_.size()) {
  LH_ASSERT(bins >= 1 && std::is_sorted(thresholds_.begin(), thresholds_.end()), "{} bins, thresholds not ascending",
            bins);
}

WlbBins WlbPacker::pack(std::span<const PlannedDocument> documents) {
  std::vector<PlannedDocument> fresh;
  for (const PlannedDocument& document : documents) {
    const auto above = std::upper_bound(thresholds_.begin(), thresholds_.end(), document.tokens);
    if (above == thresholds_.begin()) {
      fresh.push_back(document);
    } else {
      queues_[static_cast<std::size_t>(above - thresholds_.begin() - 1)].push_back(document);
    }
  }
  for (std::deque<PlannedDocument>& queue : queues_) {
    if (queue.size() < bins_) continue;
    fresh.insert(fresh.end(), queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(bins_));
    queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(bins_));
  }
  sort_longest_first(fresh);
  std::vector<PlannedDocument> order = std::move(left_over_);
  order.insert(order.end(), fresh.begin(), fresh.end());
  left_over_.clear();
  WlbBins bins = empty_bins(bins_);
  for (const PlannedDocument& document : order) {
    if (!try_put(bins, document, most_tokens_, work_)) left_over_.push_back(document);
  }
  return bins;
}

std::int64_t WlbPacker::waiting() const {
  std::size_t count = left_over_.size();
  for (const std::deque<PlannedDocument>& queue : queues_) count += queue.size();
  return static_cast<std::int64_t>(count);
}

std::int64_t WlbPacker::waiting_tokens() const {
  std::int64_t tokens = 0;
  for (const PlannedDocument& document : left_over_) tokens += document.tokens;
  for (const std::deque<PlannedDocument>& queue : queues_) {
    for (const PlannedDocument& document : queue) tokens += document.tokens;
  }
  return tokens;
}

WlbBins wlb_pack_all(std::span<const PlannedDocument> documents, std::int64_t bins, std::int64_t most_tokens,
                     const WlbWork& work) {
  LH_ASSERT(bins >= 1, "{} bins", bins);
  std::vector<PlannedDocument> order(documents.begin(), documents.end());
  sort_longest_first(order);
  WlbBins packed = empty_bins(static_cast<std::size_t>(bins));
  std::vector<PlannedDocument> forced;
  for (const PlannedDocument& document : order) {
    if (!try_put(packed, document, most_tokens, work)) forced.push_back(document);
  }
  for (const PlannedDocument& document : forced) put(packed, least_work(packed), document, work);
  return packed;
}

double wlb_padded_pairs(const CpPlan& plan) {
  double most = 0;
  for (const std::vector<Shard>& shards : plan.ranks) {
    double pairs = 0;
    for (const Shard& shard : shards) {
      if (shard.is_padding()) continue;
      const std::int64_t rows = ceil_div(shard.tokens, kTile) * kTile;
      pairs += static_cast<double>(shard_pairs(shard.prefix, rows));
    }
    most = std::max(most, pairs);
  }
  return most;
}

namespace {

// `cuts`, if given, counts which was taken.
tl::expected<CpPlan, std::string> better_cut(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                             const CpClock& clock, std::map<std::string, std::int64_t>* cuts) {
  auto per_sequence = plan_allgather_cp(documents, ranks);
  if (!per_sequence) return per_sequence;
  auto per_document = plan_per_doc_cp(documents, ranks);
  if (!per_document) return per_document;
  const auto cost = [&](const CpPlan& plan) {
    return clock.known() ? clock.forward_attention_seconds(plan) : wlb_padded_pairs(plan);
  };
  const bool by_document = cost(*per_document) < cost(*per_sequence);
  if (cuts != nullptr) ++(*cuts)[by_document ? "by document" : "by sequence"];
  return by_document ? per_document : per_sequence;
}

}  // namespace

tl::expected<CpPlan, std::string> plan_wlb_sequence(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                                    const CpClock& clock) {
  return better_cut(documents, ranks, clock, nullptr);
}

tl::expected<WlbPlans, std::string> plan_wlb(const StrategyRequest& request) {
  WlbPlans result;
  const CpClock clock(request);
  const SequencePlanner planner = [&](std::span<const PlannedDocument> documents, std::int64_t ranks) {
    return better_cut(documents, ranks, clock, &result.cuts);
  };
  // Delayed: select_wlb has packed the batch; a sequence is a micro-batch.
  if (request.options.value("packing", "fixed") != "variable") {
    auto plans = plan_batch(request, planner);
    if (!plans) return tl::unexpected(plans.error());
    result.plans = std::move(*plans);
    return result;
  }
  std::vector<PlannedDocument> documents;
  std::int64_t tokens = 0;
  for (const Sequence& sequence : request.batch->sequences) {
    for (const PlannedDocument& document : sequence_documents(*request.batch, sequence)) documents.push_back(document);
    tokens = std::max(tokens, sequence.tokens);
  }
  const std::int64_t chunks =
      micro_batch_count(*request.batch, request.degrees.dp, request.training.micro_batch_sequences);
  const double limit = request.options.value("packing_limit", kWlbPackingLimit) *
                       static_cast<double>(tokens * request.training.micro_batch_sequences);
  const WlbBins packed =
      wlb_pack_all(documents, chunks * request.degrees.dp, static_cast<std::int64_t>(limit), work_of(request.model));
  for (const std::vector<PlannedDocument>& bin : packed.bins) {
    auto plan = plan_shared(bin, request.degrees.cp, planner);
    if (!plan) {
      return tl::unexpected(bin.empty() ? "there are fewer documents than micro-batches to pack them into"
                                        : plan.error());
    }
    result.plans.push_back(std::move(*plan));
  }
  return result;
}

std::vector<std::string> wlb_option_keys() { return {"packing", "packing_limit", "queues"}; }

void check_wlb_options(const Json& options, const std::string& file, const std::string& path, Errors& errors) {
  JsonReader reader(options, file, path, errors);
  const std::string packing = reader.choice("packing", {"fixed", "variable", "delayed"}).value_or("fixed");
  const auto limit = reader.number("packing_limit", 1.0, 100.0);
  const auto queues = reader.integer("queues", 1, kMostQueues);
  if (limit && packing == "fixed") {
    reader.add_error("packing_limit", "is given for packing of fixed length",
                     "\"packing\": \"variable\" or \"delayed\" beside it");
  }
  if (queues && packing != "delayed") {
    reader.add_error("queues", "is given for packing without delay", "\"packing\": \"delayed\" beside it");
  }
}

}  // namespace longhaul
