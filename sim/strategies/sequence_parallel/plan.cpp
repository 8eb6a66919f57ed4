#include "sim/strategies/sequence_parallel/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

using SequenceLists = std::vector<std::vector<std::int64_t>>;

// Sequences per group, `per_group` consecutive ones each; groups past the last sequence are idle.
SequenceLists consecutive(std::int64_t sequences, std::int64_t groups, std::int64_t per_group) {
  SequenceLists lists(static_cast<std::size_t>(groups));
  for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
    lists[static_cast<std::size_t>(sequence / per_group)].push_back(sequence);
  }
  return lists;
}

tl::expected<SequenceLists, std::string> form_groups(std::int64_t sequences, std::int64_t ranks,
                                                     BaspBatchPolicy policy) {
  if (policy == BaspBatchPolicy::kGcd) {
    const std::int64_t groups = std::gcd(ranks, sequences);
    return consecutive(sequences, groups, sequences / groups);
  }
  if (policy == BaspBatchPolicy::kPad) {
    if (sequences > ranks) {
      return tl::unexpected(fmt::format("a micro-batch of {} sequences is larger than the {} ranks", sequences, ranks));
    }
    std::int64_t groups = sequences;
    while (ranks % groups != 0) ++groups;
    return consecutive(sequences, groups, 1);
  }
  if (ranks % sequences != 0) {
    return tl::unexpected(
        fmt::format("the micro-batch of {} sequences does not divide the {} ranks", sequences, ranks));
  }
  return consecutive(sequences, sequences, 1);
}

// Rows of a sequence on one rank: the sequence padded at its end to a multiple of the group, in contiguous slices.
SequenceRows slice(std::int64_t sequence, std::int64_t tokens, std::int64_t rows, std::int64_t local) {
  const std::int64_t first = std::min(tokens, local * rows);
  const std::int64_t real = std::min(tokens, (local + 1) * rows) - first;
  return {sequence, first, real, rows - real};
}

tl::expected<SpPlan, std::string> make_plan(std::span<const std::int64_t> sequence_tokens, std::int64_t ranks,
                                            std::int64_t q_heads, std::int64_t kv_heads, SequenceLists lists) {
  SpPlan plan;
  plan.ranks = ranks;
  plan.group_size = ranks / static_cast<std::int64_t>(lists.size());
  auto heads = head_share(q_heads, kv_heads, plan.group_size);
  if (!heads) return tl::unexpected(heads.error());
  plan.heads = *heads;
  plan.rows.resize(static_cast<std::size_t>(ranks));
  for (std::vector<std::int64_t>& sequences : lists) {
    SpGroup group;
    group.first_rank = static_cast<std::int64_t>(plan.groups.size()) * plan.group_size;
    for (const std::int64_t sequence : sequences) {
      const std::int64_t tokens = sequence_tokens[static_cast<std::size_t>(sequence)];
      LH_ASSERT(tokens >= 1, "sequence {} has {} tokens", sequence, tokens);
      const std::int64_t rows = (tokens + plan.group_size - 1) / plan.group_size;
      group.rows_per_rank += rows;
      for (std::int64_t local = 0; local < plan.group_size; ++local) {
        plan.rows[static_cast<std::size_t>(group.first_rank + local)].push_back(slice(sequence, tokens, rows, local));
      }
    }
    group.sequences = std::move(sequences);
    plan.groups.push_back(std::move(group));
  }
  return plan;
}

std::optional<std::string> refusal(std::span<const std::int64_t> sequence_tokens, std::int64_t ranks) {
  if (ranks < 1) return fmt::format("the group needs at least 1 rank, not {}", ranks);
  if (sequence_tokens.empty()) return "the micro-batch has no sequences";
  return std::nullopt;
}

}  // namespace

tl::expected<HeadShare, std::string> head_share(std::int64_t q_heads, std::int64_t kv_heads, std::int64_t group_size) {
  LH_ASSERT(q_heads >= 1 && kv_heads >= 1 && q_heads % kv_heads == 0, "{} query heads, {} K/V heads", q_heads,
            kv_heads);
  if (q_heads % group_size != 0) {
    return tl::unexpected(fmt::format("a group of {} ranks does not divide the {} query heads", group_size, q_heads));
  }
  if (kv_heads % group_size != 0 && group_size % kv_heads != 0) {
    return tl::unexpected(fmt::format("a group of {} ranks neither divides the {} K/V heads nor is a multiple of them",
                                      group_size, kv_heads));
  }
  const std::int64_t replication = std::max<std::int64_t>(1, group_size / kv_heads);
  return HeadShare{group_size, q_heads / group_size, kv_heads * replication / group_size, replication};
}

tl::expected<SpPlan, std::string> plan_ulysses(std::span<const std::int64_t> sequence_tokens, std::int64_t ranks,
                                               std::int64_t q_heads, std::int64_t kv_heads) {
  if (auto reason = refusal(sequence_tokens, ranks)) return tl::unexpected(*reason);
  const auto sequences = static_cast<std::int64_t>(sequence_tokens.size());
  return make_plan(sequence_tokens, ranks, q_heads, kv_heads, consecutive(sequences, 1, sequences));
}

tl::expected<SpPlan, std::string> plan_basp(std::span<const std::int64_t> sequence_tokens, std::int64_t ranks,
                                            std::int64_t q_heads, std::int64_t kv_heads, BaspBatchPolicy policy) {
  if (auto reason = refusal(sequence_tokens, ranks)) return tl::unexpected(*reason);
  auto lists = form_groups(static_cast<std::int64_t>(sequence_tokens.size()), ranks, policy);
  if (!lists) return tl::unexpected(lists.error());
  return make_plan(sequence_tokens, ranks, q_heads, kv_heads, std::move(*lists));
}

AllToAllVolume all_to_all_volume(const HeadShare& heads, std::int64_t tokens, std::int64_t head_dim,
                                 std::int64_t bytes_per_element, std::int64_t on_node) {
  // What one peer gets: a P-th of each buffer, an integer because the heads divide.
  const std::int64_t row = tokens * head_dim * bytes_per_element;
  const std::int64_t share = row * (2 * heads.q_heads + 2 * heads.kv_heads);
  AllToAllVolume volume;
  volume.query = row * heads.q_heads * heads.group_size;
  volume.key = row * heads.kv_heads * heads.group_size;
  volume.value = volume.key;
  volume.output = volume.query;
  volume.leaves_gpu = share * (heads.group_size - 1);
  volume.leaves_node = share * (heads.group_size - on_node);
  return volume;
}

std::int64_t zero3_gather_bytes(std::int64_t parameters, std::int64_t ranks, std::int64_t bytes_per_parameter) {
  return parameters * bytes_per_parameter * (ranks - 1) / ranks;
}

GroupTopology group_topology(std::int64_t first_rank, std::int64_t size, std::int64_t gpus_per_node) {
  const std::int64_t last_rank = first_rank + size - 1;
  if (first_rank / gpus_per_node == last_rank / gpus_per_node) return GroupTopology::kInsideNode;
  const bool whole = first_rank % gpus_per_node == 0 && size % gpus_per_node == 0;
  return whole ? GroupTopology::kWholeNodes : GroupTopology::kStraddles;
}

std::int64_t members_on_node(std::int64_t first_rank, std::int64_t size, std::int64_t gpus_per_node,
                             std::int64_t local) {
  const std::int64_t node = (first_rank + local) / gpus_per_node;
  return std::min(first_rank + size, (node + 1) * gpus_per_node) - std::max(first_rank, node * gpus_per_node);
}

}  // namespace longhaul
