// Head-parallel (all-to-all) sequence parallelism: Ulysses and BASP.
//
// The N ranks of one replica train a micro-batch of B sequences. Ulysses: one group of N holds a slice of every
// sequence. BASP: B groups of K = N/B contiguous ranks, each with its own sequence; B = 1 is Ulysses. Outside attention
// a rank holds 1/P of each sequence of its group, in order; inside, all tokens of 1/P of the heads (P = group size).
// Units: tokens, bytes. Sources: basp.md 2.2, 2.3, 2.7, 3.1 (BASP, arXiv 2609.03151; DeepSpeed-Ulysses, arXiv
// 2309.14509). Ignores time; attention pairs are exact for every rank because heads, not tokens, are split.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace longhaul {

// What to do when B does not divide N (basp.md 2.2).
enum class BaspBatchPolicy : std::uint8_t {
  kReject,  // not applicable, as in the paper
  kGcd,     // c = gcd(N, B) groups of N/c, B/c sequences each
  kPad,     // B rounded up to the next divisor of N; groups without a sequence idle
};

// Rows [first, first + tokens) of a sequence and `padding` rows after them: what one rank holds of it.
struct SequenceRows {
  std::int64_t sequence = 0;  // index into the micro-batch
  std::int64_t first = 0;     // row of the packed sequence, which no padding precedes
  std::int64_t tokens = 0;
  std::int64_t padding = 0;
  bool operator==(const SequenceRows&) const = default;
};

struct SpGroup {
  std::int64_t first_rank = 0;
  std::vector<std::int64_t> sequences;  // indices into the micro-batch, in order; empty for an idle group
  std::int64_t rows_per_rank = 0;       // tokens plus padding
  bool operator==(const SpGroup&) const = default;
};

// Heads of the ranks of a group. Local rank i computes query heads [i*q_heads, (i+1)*q_heads) with K/V heads
// [first_kv_head(i), first_kv_head(i) + kv_heads).
struct HeadShare {
  std::int64_t group_size = 1;
  std::int64_t q_heads = 0;         // h / P
  std::int64_t kv_heads = 0;        // h_kv r / P
  std::int64_t kv_replication = 1;  // r(P) = max(1, P / h_kv)

  std::int64_t first_q_head(std::int64_t local) const { return local * q_heads; }
  std::int64_t first_kv_head(std::int64_t local) const { return local * kv_heads / kv_replication; }
  bool operator==(const HeadShare&) const = default;
};

struct SpPlan {
  std::int64_t ranks = 0;       // N
  std::int64_t group_size = 0;  // P: N for Ulysses, K for BASP
  std::vector<SpGroup> groups;
  std::vector<std::vector<SequenceRows>> rows;  // by rank, in local order
  HeadShare heads;

  const SpGroup& group_of(std::int64_t rank) const { return groups[static_cast<std::size_t>(rank / group_size)]; }
  std::int64_t local_rank(std::int64_t rank) const { return rank % group_size; }
  bool operator==(const SpPlan&) const = default;
};

// P | h, and h_kv | P or P | h_kv (basp.md 3.1, HF path); the reason otherwise.
tl::expected<HeadShare, std::string> head_share(std::int64_t q_heads, std::int64_t kv_heads, std::int64_t group_size);

// `sequence_tokens`: real tokens of each sequence of the micro-batch, at least one sequence, each at least 1.
// Sequences are padded at their end to a multiple of the group size.
tl::expected<SpPlan, std::string> plan_ulysses(std::span<const std::int64_t> sequence_tokens, std::int64_t ranks,
                                               std::int64_t q_heads, std::int64_t kv_heads);
tl::expected<SpPlan, std::string> plan_basp(std::span<const std::int64_t> sequence_tokens, std::int64_t ranks,
                                            std::int64_t q_heads, std::int64_t kv_heads,
                                            BaspBatchPolicy policy = BaspBatchPolicy::kReject);

// Bytes of the four all-to-alls of one layer's forward pass, one rank (basp.md 2.3).
struct AllToAllVolume {
  std::int64_t query = 0;                                               // b_Q = n h d e
  std::int64_t key = 0;                                                 // b_K = b_V = n h_kv r(P) d e
  std::int64_t value = 0;                                               //
  std::int64_t output = 0;                                              // b_O = b_Q
  std::int64_t leaves_gpu = 0;                                          // b (P-1)/P
  std::int64_t leaves_node = 0;                                         // b (P-g)/P
  std::int64_t buffer() const { return query + key + value + output; }  // b_fwd
  bool operator==(const AllToAllVolume&) const = default;
};
// `tokens` n: rows of one rank outside attention. `on_node` g: members of the group on this rank's node.
AllToAllVolume all_to_all_volume(const HeadShare& heads, std::int64_t tokens, std::int64_t head_dim,
                                 std::int64_t bytes_per_element, std::int64_t on_node);

// Bytes that one rank receives in a ring all-gather of all parameters: (N-1)/N Psi e_p (basp.md 2.6), rounded down.
std::int64_t zero3_gather_bytes(std::int64_t parameters, std::int64_t ranks, std::int64_t bytes_per_parameter);

// Where a group of `size` contiguous ranks from `first_rank` lies on nodes of `gpus_per_node` (basp.md 2.2).
enum class GroupTopology : std::uint8_t { kInsideNode, kWholeNodes, kStraddles };
GroupTopology group_topology(std::int64_t first_rank, std::int64_t size, std::int64_t gpus_per_node);
// g: members of the group on the node of its member `local`.
std::int64_t members_on_node(std::int64_t first_rank, std::int64_t size, std::int64_t gpus_per_node,
                             std::int64_t local);

}  // namespace longhaul
