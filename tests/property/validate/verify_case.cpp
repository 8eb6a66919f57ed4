#include "tests/property/validate/verify_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <utility>

namespace longhaul {
namespace {

constexpr std::int64_t kMostTokens = 2048;

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
    do {
      documents.push_back(log_uniform(draw, 1, left));
      left -= documents.back();
    } while (left > 0 && draw(0, 5) > 0);
    add_sequence(*batch, documents);
  }
  return batch;
}

// Options whose values are words or flags, one of each that the strategy has.
const std::vector<std::pair<std::string, std::vector<Json>>>& option_values() {
  static const std::vector<std::pair<std::string, std::vector<Json>>> values = {
      {"cut", {"document", "sequence"}},
      {"cut_rule", {"equalise", "equalise-swap", "naive"}},
      {"exchange", {"padded", "exact"}},
      {"overlap", {false, true}},
      {"copies", {"fused", "framework"}},
      {"split", {"anywhere", "node"}},
      {"packing", {"fixed", "variable", "delayed"}},
      {"queues", {1, 3}},
      {"micro_batches", {"packed", "gds"}},
      {"stages", {1, 2, 4}},
      {"chunk_tokens", {1, 7, 2048}},
      {"bucket_tokens", {8, 64, 4096}},
      {"rank_tokens", {8, 64, 4096}},
      {"block_tokens", {1, 16, 1024}},
      {"divisions", {2, 4}},
      {"imbalance_intra", {0.0, 0.1, 1.0}},
  };
  return values;
}

bool has_option(const Strategy& strategy, const std::string& key) {
  return std::find(strategy.option_keys.begin(), strategy.option_keys.end(), key) != strategy.option_keys.end();
}

void finish(const Strategy& strategy, StrategyRequest& request, const Degrees& degrees, const Json& options) {
  request.degrees = degrees;
  request.ranks = degrees.ranks();
  request.gpus_per_node = request.ranks % 4 == 0 ? 4 : request.ranks;
  for (const auto& [key, value] : options.items()) {
    if (has_option(strategy, key)) request.options[key] = value;
  }
}

}  // namespace

tl::expected<VerifyCase, std::string> draw_case(const Strategy& strategy, const DrawInteger& draw) {
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
  for (const auto& [key, values] : option_values()) {
    if (has_option(strategy, key)) request.options[key] = pick(draw, values);
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

VerifyCase draw_applicable(const Strategy& strategy, const DrawInteger& draw, std::map<std::string, int>& redrawn) {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    auto drawn = draw_case(strategy, draw);
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
      for (const auto& [key, values] : option_values()) {
        const std::size_t turn = static_cast<std::size_t>(variant) + key.size();
        if (key == "packing" || key == "bucket_tokens" || key == "chunk_tokens") continue;  // would refuse some corners
        if (has_option(strategy, key)) corner.request.options[key] = values[turn % values.size()];
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
