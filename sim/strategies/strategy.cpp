#include "sim/strategies/strategy.h"

#include <fmt/format.h>

#include <algorithm>

namespace longhaul {
namespace {

using Resolved = tl::expected<Degrees, std::string>;

Resolved check_product(const Degrees& degrees, int ranks) {
  if (degrees.ranks() == ranks) return degrees;
  return tl::unexpected(fmt::format("pp {} x cp {} x sp {} x dp {} is {} GPUs, not {}", degrees.pp, degrees.cp,
                                    degrees.sp, degrees.dp, degrees.ranks(), ranks));
}

Resolved no_degree(const char* degree, int value) {
  return tl::unexpected(fmt::format("the strategy has no {}, but the layout sets it to {}", degree, value));
}

// Largest divisor of `ranks`, at most `limit`, over which the heads spread evenly: it divides the query heads, and it
// divides the K/V heads or they divide it (each is then held by several ranks). See `head_share` of the sequence
// family.
int largest_divisor(int ranks, int limit, const ModelShape& model) {
  for (int degree = std::min(ranks, limit); degree > 1; --degree) {
    const bool kv_fits = model.kv_heads % degree == 0 || degree % model.kv_heads == 0;
    if (ranks % degree == 0 && model.q_heads % degree == 0 && kv_fits) return degree;
  }
  return 1;
}

// dp and the one other degree: what is missing follows from the product.
Resolved resolve_pair(const std::optional<int>& shared, const std::optional<int>& dp, int ranks, int default_shared,
                      int Degrees::*member) {
  Degrees degrees;
  degrees.*member = shared ? *shared : (dp ? std::max(1, ranks / *dp) : default_shared);
  degrees.dp = dp ? *dp : std::max(1, ranks / (degrees.*member));
  return check_product(degrees, ranks);
}

Resolved resolve_pipeline(const Layout& layout, int ranks, int gpus_per_node, const ModelShape& model) {
  const int nodes = std::max(1, ranks / gpus_per_node);
  Degrees degrees;
  if (layout.pp) {
    degrees.pp = *layout.pp;
  } else {
    degrees.pp = 2;
    for (int pp = 2; pp <= std::max(2, nodes); ++pp) {
      if (model.layers % pp == 0 && ranks % pp == 0) degrees.pp = pp;
    }
  }
  if (ranks % degrees.pp != 0) {
    return tl::unexpected(fmt::format("{} stages do not divide {} GPUs", degrees.pp, ranks));
  }
  const int stage = ranks / degrees.pp;
  if (layout.sp) {
    degrees.sp = *layout.sp;
  } else if (layout.dp) {
    degrees.sp = std::max(1, stage / *layout.dp);
  } else {
    degrees.sp = largest_divisor(stage, gpus_per_node, model);
  }
  degrees.dp = layout.dp ? *layout.dp : std::max(1, stage / degrees.sp);
  return check_product(degrees, ranks);
}

}  // namespace

tl::expected<Degrees, std::string> resolve_degrees(StrategyFamily family, const Layout& layout, int ranks,
                                                   int gpus_per_node, const ModelShape& model) {
  const bool context = family == StrategyFamily::kContext;
  const bool sequence = family == StrategyFamily::kSequence;
  const bool pipeline = family == StrategyFamily::kPipeline;
  if (!context && layout.cp.value_or(1) > 1) return no_degree("cp", *layout.cp);
  if (!sequence && !pipeline && layout.sp.value_or(1) > 1) return no_degree("sp", *layout.sp);
  if (!pipeline && layout.pp.value_or(1) > 1) return no_degree("pp", *layout.pp);
  if (pipeline) return resolve_pipeline(layout, ranks, gpus_per_node, model);
  if (context) return resolve_pair(layout.cp, layout.dp, ranks, ranks, &Degrees::cp);
  if (sequence) return resolve_pair(layout.sp, layout.dp, ranks, largest_divisor(ranks, ranks, model), &Degrees::sp);
  Degrees degrees;
  degrees.dp = layout.dp.value_or(ranks);
  return check_product(degrees, ranks);
}

tl::expected<void, std::string> check_applicable(const Strategy& strategy, const StrategyRequest& request) {
  if (request.batch->objective.kind != strategy.objective) {
    return tl::unexpected(std::string(strategy.objective == ObjectiveKind::kCausalLm
                                          ? "runs causal language models, not block diffusion"
                                          : "runs block diffusion, not causal language models"));
  }
  const bool attention = request.training.scope == Scope::kAttention;
  if (strategy.family == StrategyFamily::kPipeline && (attention || !request.training.backward)) {
    return tl::unexpected(std::string(
        "a pipeline is whole layers, forward and backward; use scope \"step\", \"forward-backward\" or \"layers\" with "
        "both passes"));
  }
  if (request.ranks == 1 && strategy.family != StrategyFamily::kData) {
    return tl::unexpected(std::string("one GPU has nothing to share a sequence with; use data-parallel"));
  }
  const bool head = request.training.scope == Scope::kStep || request.training.scope == Scope::kForwardBackward;
  if (request.degrees.pp > 1 && request.model.tied_embeddings && head) {
    return tl::unexpected(std::string(
        "tied embeddings on two stages need a gradient exchange between first and last stage, which is not built"));
  }
  const std::int64_t sequences = static_cast<std::int64_t>(request.batch->sequences.size());
  const std::int64_t fill = request.degrees.dp * request.training.micro_batch_sequences;
  if (strategy.family != StrategyFamily::kPipeline && (sequences == 0 || sequences % fill != 0)) {
    const std::int64_t below = sequences / fill * fill;
    return tl::unexpected(fmt::format("{} sequences do not fill dp {} x micro-batches of {}; nearest counts: {}{}",
                                      sequences, request.degrees.dp, request.training.micro_batch_sequences,
                                      below > 0 ? fmt::format("{} or ", below) : "", below + fill));
  }
  return {};
}

}  // namespace longhaul
