#include "tests/property/validate/verify_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <utility>

#include "sim/cluster/cluster.h"
#include "sim/core/data_files.h"
#include "sim/cost/attention_library.h"

namespace longhaul {
namespace {

constexpr std::int64_t kMostTokens = 2048;
constexpr std::int64_t kMostDocuments = 64;

// Nodes of 4 where the ranks fill them, else one node.
int node_ranks(int ranks) { return ranks % 4 == 0 ? 4 : ranks; }

std::vector<std::int64_t> divisors(std::int64_t of) {
  std::vector<std::int64_t> found;
  for (std::int64_t d = 1; d <= of; ++d) {
    if (of % d == 0) found.push_back(d);
  }
  return found;
}

template <class T>
T pick(const DrawInteger& draw, const std::vector<T>& from) {
  return from[static_cast<std::size_t>(draw(0, static_cast<std::int64_t>(from.size()) - 1))];
}

std::int64_t log_uniform(const DrawInteger& draw, std::int64_t low, std::int64_t high) {
  constexpr std::int64_t kSteps = 1 << 20;
  const double u = static_cast<double>(draw(0, kSteps - 1)) / static_cast<double>(kSteps);
  const double top = static_cast<double>(high + 1) / static_cast<double>(low);
  return std::clamp(static_cast<std::int64_t>(static_cast<double>(low) * std::pow(top, u)), low, high);
}

// A degree above 1 where the ranks allow it.
int shared_degree(const DrawInteger& draw, int ranks) {
  std::vector<std::int64_t> choices = divisors(ranks);
  if (choices.size() > 1) choices.erase(choices.begin());
  return static_cast<int>(pick(draw, choices));
}

Degrees draw_degrees(const Strategy& strategy, const DrawInteger& draw, int ranks) {
  Degrees degrees;
  switch (strategy.family) {
    case StrategyFamily::kData:
      break;
    case StrategyFamily::kContext:
      degrees.cp = shared_degree(draw, ranks);
      break;
    case StrategyFamily::kSequence:
      degrees.sp = shared_degree(draw, ranks);
      break;
    case StrategyFamily::kPipeline:
      degrees.pp = shared_degree(draw, ranks);
      degrees.sp = static_cast<int>(pick(draw, divisors(ranks / degrees.pp)));
      break;
  }
  degrees.dp = ranks / (degrees.pp * degrees.cp * degrees.sp);
  return degrees;
}

// Query heads for `sp` ranks to share, `group` of them to a key head.
ModelShape make_model(std::int64_t q_heads, std::int64_t kv_heads, std::int64_t layers) {
  ModelShape model;
  model.name = "reduced";
  model.head_dim = 8;
  model.q_heads = q_heads;
  model.kv_heads = kv_heads;
  model.hidden = model.q_width();
  model.ffn = 4 * model.hidden;
  model.layers = layers;
  model.vocab = 97;
  return model;
}

ModelShape draw_model(const DrawInteger& draw, const Degrees& degrees) {
  const std::int64_t heads = std::max<std::int64_t>(2, degrees.sp * draw(1, degrees.sp > 4 ? 1 : 2));
  ModelShape model = make_model(heads, pick(draw, divisors(heads)), std::max<std::int64_t>(2, degrees.pp + draw(0, 1)));
  model.tied_embeddings = degrees.pp == 1 && draw(0, 3) == 0;
  model.qkv_bias = draw(0, 3) == 0;
  model.qk_norm = draw(0, 3) == 0;
  return model;
}

void add_sequence(Batch& batch, const std::vector<std::int64_t>& documents) {
  Sequence sequence;
  for (const std::int64_t tokens : documents) {
    sequence.documents.push_back(static_cast<DocumentId>(batch.documents.size()));
    sequence.tokens += tokens;
    batch.documents.push_back(tokens);
  }
  batch.context_tokens = std::max(batch.context_tokens, sequence.tokens);
  batch.sequences.push_back(std::move(sequence));
}

Objective objective_of(const Strategy& strategy, std::int64_t block) {
  if (strategy.objective == ObjectiveKind::kCausalLm) return {};
  return {ObjectiveKind::kBlockDiffusion, block};
}

// Tokens of a document that stands first in every step's first sequence, for runs by hand: LONGHAUL_DOCUMENT_TOKENS.
std::int64_t long_document() {
  const char* tokens = std::getenv("LONGHAUL_DOCUMENT_TOKENS");
  return tokens == nullptr ? 0 : std::atoll(tokens);
}

std::shared_ptr<const Batch> draw_batch(const DrawInteger& draw, const Objective& objective, std::int64_t sequences) {
  auto batch = std::make_shared<Batch>();
  batch->objective = objective;
  const std::int64_t budget = log_uniform(draw, sequences, kMostTokens);
  for (std::int64_t i = 0; i < sequences; ++i) {
    std::vector<std::int64_t> documents;
    if (i == 0 && long_document() > 0) documents.push_back(long_document());
    std::int64_t left = std::max<std::int64_t>(1, budget / sequences);
    const std::int64_t longest = log_uniform(draw, 1, left);
    for (std::int64_t count = log_uniform(draw, 1, kMostDocuments); count > 0 && left > 0; --count) {
      documents.push_back(log_uniform(draw, 1, std::min(left, longest)));
      left -= documents.back();
    }
    add_sequence(*batch, documents);
  }
  return batch;
}

struct DrawnOption {
  std::string key;
  std::vector<Json> values;
  bool size = false;  // a number of a strategy, no variant of it
};

const std::vector<DrawnOption>& drawn_options() {
  static const std::vector<DrawnOption> options = {
      {"cut", {"document", "sequence"}},
      {"cut_rule", {"equalise", "equalise-swap", "naive"}},
      {"count_per_doc_pairs", {true, false}},
      {"choose", {"time", "imbalance"}},
      {"per_doc", {"limit", "time"}},
      {"exchange", {"padded", "exact"}},
      {"overlap", {false, true}},
      {"documents", {"together", "one-by-one"}},  // before the copies that need it
      {"copies", {"fused", "framework"}},
      {"deal", {"in-order", "shuffled"}},
      {"split", {"anywhere", "node"}},
      {"packing", {"fixed", "variable", "delayed"}},
      {"micro_batches", {"packed", "gds"}},
      {"imbalance_limit", {1.0, 1.05, 2.0}, true},
      {"queues", {1, 3}, true},
      {"packing_limit", {1.0, 2.0}, true},
      {"stages", {1, 2, 4}, true},
      {"chunk_tokens", {1, 7, 2048}, true},
      {"bucket_tokens", {8, 64, 4096}, true},
      {"rank_tokens", {8, 64, 4096}, true},
      {"block_tokens", {1, 16, 1024}, true},
      {"divisions", {2, 4}, true},
      {"imbalance_inter", {0.0, 0.4, 1.0}, true},
      {"imbalance_intra", {0.0, 0.1, 1.0}, true},
  };
  return options;
}

// Ranks that planners may ask for times.
const Cluster& cluster_of(int ranks) {
  static std::map<int, Cluster> known;
  const auto found = known.find(ranks);
  if (found != known.end()) return found->second;
  auto topology = read_topology("dgx-h100-ndr", data_directory());
  if (!topology) throw std::runtime_error("no topology dgx-h100-ndr");
  topology->gpus_per_node = node_ranks(ranks);
  return known.emplace(ranks, Cluster(*topology, ranks)).first->second;
}

const KernelModel& kernels_of(const std::string& library_name) {
  static std::map<std::string, KernelModel> known;
  const auto found = known.find(library_name);
  if (found != known.end()) return found->second;
  auto kernels = load_kernel_model(cluster_of(1).device(), data_directory());
  if (!kernels) throw std::runtime_error("no calibration");
  if (library_name != attention_library_names().front()) {
    const auto library = read_attention_library(library_name, data_directory());
    if (!library) throw std::runtime_error("no attention library " + library_name);
    kernels = kernels->with_attention_library(*library);
  }
  return known.emplace(library_name, *kernels).first->second;
}

bool has_option(const Strategy& strategy, const std::string& key) {
  return std::find(strategy.option_keys.begin(), strategy.option_keys.end(), key) != strategy.option_keys.end();
}

void finish(const Strategy& strategy, StrategyRequest& request, const Degrees& degrees, const Json& options) {
  request.degrees = degrees;
  request.ranks = degrees.ranks();
  request.gpus_per_node = node_ranks(request.ranks);
  for (const auto& [key, value] : options.items()) {
    if (has_option(strategy, key)) request.options[key] = value;
  }
}

// Whether the strategy itself takes such options together; the faults of a study are tested elsewhere.
bool options_agree(const Strategy& strategy, const Json& options) {
  Errors errors;
  if (strategy.check_options) strategy.check_options(options, "", "", errors);
  return errors.empty();
}

// Every option, or beside a variant's those that are sizes, each in half of the draws.
void draw_options(StrategyRequest& request, const Strategy& strategy, const DrawInteger& draw,
                  const VerifyVariant* variant) {
  if (variant != nullptr) request.options.update(variant->options);
  for (const DrawnOption& option : drawn_options()) {
    if (!has_option(strategy, option.key) || request.options.contains(option.key)) continue;
    if (variant != nullptr && (!option.size || draw(0, 1) == 0)) continue;
    request.options[option.key] = pick(draw, option.values);
    if (!options_agree(strategy, request.options)) request.options.erase(option.key);
  }
}

}  // namespace

tl::expected<VerifyCase, std::string> draw_case(const Strategy& strategy, const DrawInteger& draw,
                                                const VerifyVariant* variant) {
  const bool data = strategy.family == StrategyFamily::kData;
  const auto ranks = static_cast<int>(draw(data ? 1 : 2, 16));
  const Degrees degrees = draw_degrees(strategy, draw, ranks);
  VerifyCase drawn;
  StrategyRequest& request = drawn.request;
  request.model = draw_model(draw, degrees);
  request.training.zero_stage = draw(0, 1) == 0 ? 0 : 3;
  request.training.recompute = draw(0, 1) == 0 ? Recompute::kNone : Recompute::kFull;
  request.training.micro_batch_sequences =
      draw(1, degrees.sp > 2 && strategy.family == StrategyFamily::kSequence ? 4 : 2);
  const std::int64_t chunks = draw(1, 3);
  const Objective objective = objective_of(strategy, degrees.cp * draw(1, 4));
  const std::int64_t sequences = chunks * degrees.dp * request.training.micro_batch_sequences;
  request.batch = draw_batch(draw, objective, sequences);
  finish(strategy, request, degrees, {{"slices", draw(1, 4)}, {"max_slices", draw(1, 5)}});
  draw_options(request, strategy, draw, variant);
  if (draw(0, 7) > 0) {
    request.cluster = &cluster_of(ranks);
    request.kernels = &kernels_of(variant == nullptr ? "cudnn" : variant->attention_library);
  }
  if (strategy.select) {  // a step after up to two others, whose documents may have waited
    std::vector<std::shared_ptr<const Batch>> loaded;
    for (std::int64_t before = draw(0, 2); before > 0; --before)
      loaded.push_back(draw_batch(draw, objective, sequences));
    loaded.push_back(request.batch);
    const auto selected = strategy.select(request, loaded);
    if (!selected) return tl::unexpected(selected.error());
  }
  if (counted_tokens(*request.batch) == 0) return tl::unexpected(std::string("the loss counts no token"));
  const auto applicable = check_applicable(strategy, request);
  if (!applicable) return tl::unexpected(applicable.error());
  Planned planned = strategy.plan(request);
  if (!planned) return tl::unexpected(planned.error());
  drawn.schedule = planned->schedule;
  return drawn;
}

VerifyCase draw_applicable(const Strategy& strategy, const DrawInteger& draw, std::map<std::string, int>& redrawn,
                           const VerifyVariant* variant) {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    auto drawn = draw_case(strategy, draw, variant);
    if (drawn) return std::move(*drawn);
    ++redrawn[drawn.error()];
  }
  throw std::runtime_error("1000 draws in a row are not applicable to " + strategy.name);
}

std::vector<CornerCase> corner_cases(const Strategy& strategy) {
  constexpr int kRanks = 4;
  Degrees degrees;
  switch (strategy.family) {
    case StrategyFamily::kData:
      degrees.dp = kRanks;
      break;
    case StrategyFamily::kContext:
      degrees.cp = kRanks;
      break;
    case StrategyFamily::kSequence:
      degrees.sp = kRanks;
      break;
    case StrategyFamily::kPipeline:
      degrees.pp = degrees.sp = 2;
      break;
  }
  Degrees one = degrees;
  one.dp = 1;  // a single document cannot fill several replicas
  const std::vector<std::int64_t> equal(kRanks, 12);
  const std::vector<std::int64_t> small = {1, 2, 3, 5, 7, 7, 1, 4};
  struct Shape {
    const char* name;
    Degrees degrees;
    std::vector<std::vector<std::int64_t>> sequences;
  };
  std::vector<Shape> shapes = {{"one document", one, {{53}}},
                               {"one token beside a document", one, {{1, 16}}},
                               {"a document of one token last", one, {{4, 1}}},
                               {"documents shorter than 2N", degrees, {small}},
                               {"N equal documents", degrees, {equal}}};
  for (Shape& shape : shapes) {
    while (static_cast<int>(shape.sequences.size()) < shape.degrees.dp) shape.sequences.push_back(shape.sequences[0]);
  }
  std::vector<CornerCase> cases;
  for (const Shape& shape : shapes) {
    for (int variant = 0; variant < 4; ++variant) {
      CornerCase corner;
      corner.request.model = make_model(4, variant % 2 == 0 ? 4 : 2, 2);
      corner.request.training.zero_stage = variant / 2 == 0 ? 0 : 3;
      corner.request.training.recompute = variant % 2 == 0 ? Recompute::kNone : Recompute::kFull;
      auto batch = std::make_shared<Batch>();
      batch->objective = objective_of(strategy, 4);
      for (const auto& documents : shape.sequences) add_sequence(*batch, documents);
      if (counted_tokens(*batch) == 0) continue;  // block diffusion corrupts about half of the tokens
      corner.request.batch = batch;
      finish(strategy, corner.request, shape.degrees, {{"slices", 2}, {"max_slices", 3}});
      for (const auto& [key, values, size] : drawn_options()) {
        const std::size_t turn = static_cast<std::size_t>(variant) + key.size();
        if (key == "packing" || key == "bucket_tokens" || key == "chunk_tokens") continue;  // would refuse some corners
        if (!has_option(strategy, key)) continue;
        corner.request.options[key] = values[turn % values.size()];
        if (!options_agree(strategy, corner.request.options)) corner.request.options.erase(key);
      }
      corner.name = fmt::format("{}, zero {}, recompute {}", shape.name, corner.request.training.zero_stage,
                                corner.request.training.recompute == Recompute::kFull ? "full" : "none");
      cases.push_back(std::move(corner));
    }
  }
  return cases;
}

std::string describe(const StrategyRequest& request) {
  const Degrees& d = request.degrees;
  std::string text = fmt::format(
      "pp {} cp {} sp {} dp {}, heads {}/{}, layers {}, {}zero {}, recompute {}, micro-batch {}, block {}, options {},",
      d.pp, d.cp, d.sp, d.dp, request.model.q_heads, request.model.kv_heads, request.model.layers,
      request.model.tied_embeddings ? "tied, " : "", request.training.zero_stage,
      request.training.recompute == Recompute::kFull ? "full" : "none", request.training.micro_batch_sequences,
      request.batch->objective.block_tokens, request.options.dump());
  for (const Sequence& sequence : request.batch->sequences) {
    std::vector<std::int64_t> lengths;
    for (const DocumentId id : sequence.documents)
      lengths.push_back(request.batch->documents[static_cast<std::size_t>(id)]);
    text += fmt::format(" {}", lengths);
  }
  return text;
}

}  // namespace longhaul
