#include "sim/strategies/context_parallel/dcp.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "sim/core/integers.h"
#include "sim/core/invariant.h"
#include "sim/strategies/context_parallel/plan_json.h"
#include "sim/strategies/context_parallel/refusal.h"

namespace longhaul {
namespace {

constexpr std::int64_t kBlockTokens = 1024;
constexpr std::int64_t kLeastBlocksPerRank = 8;
// Computation blocks of a document grow with the square of its blocks: from here on blocks are made larger. A document
// has one however large blocks are: that one does not count, or many documents would leave all of them whole.
constexpr std::int64_t kMostWork = 1 << 15;

// Computation blocks beyond the first of each document.
std::int64_t cut_work(std::span<const PlannedDocument> documents, std::int64_t block) {
  std::int64_t count = 0;
  for (const PlannedDocument& document : documents) count += causal_pairs(ceil_div(document.tokens, block)) - 1;
  return count;
}

std::int64_t block_tokens(std::span<const PlannedDocument> documents, std::int64_t ranks, std::int64_t wanted) {
  std::int64_t tokens = 0;
  for (const PlannedDocument& document : documents) tokens += document.tokens;
  std::int64_t block = wanted > 0 ? wanted : std::min(kBlockTokens, ceil_div(tokens, kLeastBlocksPerRank * ranks));
  while (cut_work(documents, block) > kMostWork && block < tokens) block *= 2;
  return block;
}

struct Problem {
  std::vector<DcpBlock> blocks;
  std::vector<std::int32_t> place;  // of each block in its document
  std::vector<DcpWork> work;
  Hypergraph graph;  // vertices: blocks, then work; nets: queries, then keys, by block
};

std::int64_t work_pairs(const DcpBlock& query, const DcpBlock& key) {
  return query.first == key.first ? causal_pairs(query.tokens) : query.tokens * key.tokens;
}

Problem make_problem(std::span<const PlannedDocument> documents, std::int64_t block, const DcpOptions& options) {
  Problem problem;
  for (const PlannedDocument& document : documents) {
    const auto begin = static_cast<std::int32_t>(problem.blocks.size());
    for (std::int64_t first = 0; first < document.tokens; first += block) {
      problem.place.push_back(static_cast<std::int32_t>(problem.blocks.size()) - begin);
      problem.blocks.push_back({document.document, first, std::min(block, document.tokens - first), 0});
    }
    const auto end = static_cast<std::int32_t>(problem.blocks.size());
    for (std::int32_t query = begin; query < end; ++query) {
      for (std::int32_t key = begin; key <= query; ++key) problem.work.push_back({query, key, 0});
    }
  }
  Hypergraph& graph = problem.graph;
  const std::size_t blocks = problem.blocks.size();
  graph.nets.resize(2 * blocks);
  for (std::size_t i = 0; i < blocks; ++i) {
    const std::int64_t tokens = problem.blocks[i].tokens;
    graph.vertices.push_back({0, tokens});
    graph.nets[i] = {tokens * options.query_bytes, {static_cast<std::int32_t>(i)}};
    graph.nets[blocks + i] = {tokens * options.key_bytes, {static_cast<std::int32_t>(i)}};
  }
  for (const DcpWork& work : problem.work) {
    const auto vertex = static_cast<std::int32_t>(graph.vertices.size());
    const auto query = static_cast<std::size_t>(work.query), key = static_cast<std::size_t>(work.key);
    graph.vertices.push_back({work_pairs(problem.blocks[query], problem.blocks[key]), 0});
    graph.nets[query].pins.push_back(vertex);
    graph.nets[blocks + key].pins.push_back(vertex);
  }
  return problem;
}

// Clusters of each level. First `top` blocks of a document with all the work of their queries; then token blocks and
// work apart, in tiles of top x top, top/2 x top/2, ..., 1 x 1.
std::vector<Assignment> cluster_levels(const Problem& problem, std::int32_t top) {
  const std::size_t blocks = problem.blocks.size();
  std::vector<Assignment> levels;
  const auto tile_level = [&](std::int32_t side, bool joined) {
    // By first query block of the tile, first key block (-1: the tokens themselves).
    std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> ids;
    Assignment clusters;
    const auto add = [&](std::int32_t query, std::int32_t key) {
      clusters.push_back(ids.try_emplace({query, key}, static_cast<std::int32_t>(ids.size())).first->second);
    };
    const auto first_of = [&](std::int32_t block) {
      return block - problem.place[static_cast<std::size_t>(block)] % side;
    };
    for (std::size_t i = 0; i < blocks; ++i) add(first_of(static_cast<std::int32_t>(i)), -1);
    for (const DcpWork& work : problem.work) add(first_of(work.query), joined ? -1 : first_of(work.key));
    levels.push_back(std::move(clusters));
  };
  tile_level(top, true);
  for (std::int32_t side = top; side >= 1; side /= 2) tile_level(side, false);
  return levels;
}

// Blocks of a first-level cluster: a power of two, a quarter of an even share at most.
std::int32_t top_side(std::int64_t blocks, std::int64_t parts) {
  std::int32_t side = 1;
  while (2 * side * 4 * parts <= blocks) side *= 2;
  return side;
}

Assignment partition(const Problem& problem, std::int64_t parts, double epsilon) {
  const auto blocks = static_cast<std::int64_t>(problem.blocks.size());
  const std::vector<Assignment> levels = cluster_levels(problem, top_side(blocks, parts));
  return partition_hypergraph(problem.graph, levels, static_cast<std::int32_t>(parts), epsilon);
}

// Vertices of one node as a problem of their own; nets keep the pins that are there.
struct Part {
  Hypergraph graph;
  std::vector<std::size_t> vertex;  // in the whole
};

Part part_of(const Hypergraph& whole, const Assignment& nodes, std::int32_t node) {
  Part part;
  std::vector<std::int32_t> index(whole.vertices.size(), -1);
  for (std::size_t v = 0; v < whole.vertices.size(); ++v) {
    if (nodes[v] != node) continue;
    index[v] = static_cast<std::int32_t>(part.vertex.size());
    part.vertex.push_back(v);
    part.graph.vertices.push_back(whole.vertices[v]);
  }
  for (const Hypergraph::Net& net : whole.nets) {
    Hypergraph::Net kept{net.cost, {}};
    for (const std::int32_t pin : net.pins) {
      if (index[static_cast<std::size_t>(pin)] >= 0) kept.pins.push_back(index[static_cast<std::size_t>(pin)]);
    }
    if (kept.pins.size() > 1) part.graph.nets.push_back(std::move(kept));
  }
  return part;
}

Assignment assign(const Problem& problem, std::int64_t ranks, const DcpOptions& options) {
  const std::int64_t node = options.ranks_per_node;
  if (node <= 0 || node >= ranks || ranks % node != 0) return partition(problem, ranks, options.imbalance_intra);
  const Assignment nodes = partition(problem, ranks / node, options.imbalance_inter);
  const std::vector<Assignment> levels =
      cluster_levels(problem, top_side(static_cast<std::int64_t>(problem.blocks.size()), ranks));
  Assignment parts(nodes.size(), 0);
  for (std::int32_t n = 0; n < ranks / node; ++n) {
    const Part part = part_of(problem.graph, nodes, n);
    std::vector<Assignment> inside;
    for (const Assignment& level : levels) {
      Assignment& clusters = inside.emplace_back();
      for (const std::size_t v : part.vertex) clusters.push_back(level[v]);
    }
    const Assignment found =
        partition_hypergraph(part.graph, inside, static_cast<std::int32_t>(node), options.imbalance_intra);
    for (std::size_t i = 0; i < part.vertex.size(); ++i) {
      parts[part.vertex[i]] = n * static_cast<std::int32_t>(node) + found[i];
    }
  }
  return parts;
}

}  // namespace

tl::expected<DcpPlan, std::string> plan_dcp(std::span<const PlannedDocument> documents, std::int64_t ranks,
                                            const DcpOptions& options) {
  LH_ASSERT(options.block_tokens >= 0, "blocks of {} tokens", options.block_tokens);
  if (auto reason = cp_refusal(documents, ranks)) return tl::unexpected(*reason);
  const std::int64_t block = block_tokens(documents, ranks, options.block_tokens);
  Problem problem = make_problem(documents, block, options);
  const Assignment parts = assign(problem, ranks, options);
  DcpPlan plan;
  plan.cut_bytes = cut_cost(problem.graph, parts);
  plan.block_tokens = block;
  plan.rows.ranks.resize(static_cast<std::size_t>(ranks));
  std::map<DocumentId, std::int64_t> tokens_of;
  for (const PlannedDocument& document : documents) tokens_of[document.document] = document.tokens;
  for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
    DcpBlock& of = problem.blocks[i];
    of.owner = parts[i];
    append_shard(plan.rows.ranks[static_cast<std::size_t>(of.owner)],
                 {of.document, of.first, of.tokens, tokens_of.at(of.document)});
  }
  for (std::size_t i = 0; i < problem.work.size(); ++i) problem.work[i].worker = parts[problem.blocks.size() + i];
  for (std::vector<Shard>& shards : plan.rows.ranks) {
    if (shards.empty()) shards.push_back(padding_shard(1));  // it takes part in the reductions of gradients
    std::int64_t rows = 0;
    for (const Shard& shard : shards) rows += shard.tokens;
    plan.rows.padded_tokens_per_rank = std::max(plan.rows.padded_tokens_per_rank, rows);
  }
  plan.blocks = std::move(problem.blocks);
  plan.work = std::move(problem.work);
  return plan;
}

std::vector<std::int64_t> dcp_pairs(const DcpPlan& plan) {
  std::vector<std::int64_t> pairs(plan.rows.ranks.size(), 0);
  for (const DcpWork& work : plan.work) {
    pairs[static_cast<std::size_t>(work.worker)] +=
        work_pairs(plan.blocks[static_cast<std::size_t>(work.query)], plan.blocks[static_cast<std::size_t>(work.key)]);
  }
  return pairs;
}

DcpPlan concatenate(std::span<const DcpPlan> plans) {
  DcpPlan joined;
  std::vector<CpPlan> rows;
  for (const DcpPlan& plan : plans) {
    const auto offset = static_cast<std::int32_t>(joined.blocks.size());
    joined.blocks.insert(joined.blocks.end(), plan.blocks.begin(), plan.blocks.end());
    for (const DcpWork& work : plan.work) {
      joined.work.push_back({work.query + offset, work.key + offset, work.worker});
    }
    joined.cut_bytes += plan.cut_bytes;
    joined.block_tokens = std::max(joined.block_tokens, plan.block_tokens);
    rows.push_back(plan.rows);
  }
  joined.rows = concatenate(std::span<const CpPlan>(rows));
  return joined;
}

nlohmann::ordered_json dcp_plan_json(const DcpPlan& plan) {
  const std::vector<std::int64_t> pairs = dcp_pairs(plan);
  std::int64_t sum = 0, most = 0, tokens = 0, most_tokens = 0;
  auto ranks = nlohmann::ordered_json::array();
  std::vector<std::int64_t> away(pairs.size(), 0);
  for (const DcpWork& work : plan.work) {
    const DcpBlock& query = plan.blocks[static_cast<std::size_t>(work.query)];
    if (query.owner != work.worker) {
      away[static_cast<std::size_t>(work.worker)] += work_pairs(query, plan.blocks[static_cast<std::size_t>(work.key)]);
    }
  }
  for (std::size_t rank = 0; rank < pairs.size(); ++rank) {
    const CpRankLoad load = cp_rank_load(plan.rows.ranks[rank]);
    sum += pairs[rank];
    most = std::max(most, pairs[rank]);
    tokens += load.tokens;
    most_tokens = std::max(most_tokens, load.tokens);
    ranks.push_back({{"rank", rank},
                     {"tokens", load.tokens},
                     {"pairs", pairs[rank]},
                     {"pairs_of_other_ranks_queries", away[rank]},
                     {"shards", shards_json(plan.rows.ranks[rank])}});
  }
  const auto ratio = [&](std::int64_t top, std::int64_t all) {
    return all == 0 ? 1.0 : static_cast<double>(top) * static_cast<double>(pairs.size()) / static_cast<double>(all);
  };
  return {{"ranks", pairs.size()},
          {"tokens", tokens},
          {"block_tokens", plan.block_tokens},
          {"token_blocks", plan.blocks.size()},
          {"computation_blocks", plan.work.size()},
          {"pairs", sum},
          {"pairs_max", most},
          {"imbalance", ratio(most, sum)},
          {"token_imbalance", ratio(most_tokens, tokens)},
          {"cut_bytes_layer", plan.cut_bytes},
          {"per_rank", ranks}};
}

}  // namespace longhaul
