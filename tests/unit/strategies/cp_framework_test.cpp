// Copies of an eager framework around gathers and rings: bytes and launches of each op in closed form.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "sim/core/data_files.h"
#include "sim/cost/eager_kernels.h"
#include "sim/strategies/context_parallel/framework_step.h"
#include "sim/strategies/registry.h"
#include "tests/unit/strategies/ring_case.h"

namespace longhaul {
namespace {

constexpr int kFrameworkRanks = 4;
constexpr std::int64_t kTokens = 128;

struct Copies {
  std::int64_t bytes = 0;
  int launches = 0;
  std::size_t slices = 0;  // most spans of a row list of each op, summed
  std::set<EagerKernel> kernels;
  std::map<HostStall, std::int64_t> stalls;
};

std::size_t most_spans(const OpInstance& at) {
  std::size_t most = 1;
  for (const View& view : at.op->operands) {
    if (view.rows == kAllRows) continue;
    most = std::max(most, at.shape->row_lists[static_cast<std::size_t>(view.rows)]->spans.size());
  }
  return most;
}

RingCase case_of(std::vector<std::int64_t> documents) {
  RingCase of;
  of.cp = kFrameworkRanks;
  of.sequences = {std::move(documents)};
  return of;
}

Planned planned_step(const std::string& name, const RingCase& of, Json options) {
  StrategyRequest request = ring_request(of);
  if (name == "ulysses") std::swap(request.degrees.cp, request.degrees.sp);
  options["copies"] = "framework";
  request.options = options;
  request.training.scope = Scope::kAttention;
  request.training.recompute = Recompute::kNone;
  return find_strategy(name)->plan(request);
}

// By label: what the ops of layer 1 that are neither attention nor collectives read and write on one rank.
std::map<std::string, Copies> copies_of(const std::string& name, const RingCase& of, int rank, Json options = {}) {
  const Planned planned = planned_step(name, of, std::move(options));
  EXPECT_TRUE(planned.has_value()) << planned.error();
  const Schedule& schedule = *planned->schedule;
  std::map<std::string, Copies> copies;
  Cursor cursor(rank);
  OpInstance at;
  while (cursor.next(schedule, at)) {
    if (at.layer != 1 || at.op->kind == OpKind::kCollective || at.op->kind == OpKind::kAttention) continue;
    if (at.op->function == Function::kGiven || is_empty(schedule, at)) continue;
    Copies& one = copies[at.op->label];
    one.bytes += touched_bytes(schedule, at);
    one.launches += 1;
    one.slices += most_spans(at);
    one.kernels.insert(at.op->eager);
    ++one.stalls[at.op->stall];
  }
  return copies;
}

struct Widths {
  std::int64_t q = 0, kv = 0;  // bytes of a row of Q, and of K and V together
};
Widths widths_of(const RingCase& of) {
  const ModelShape model = ring_model(of);
  return {2 * model.q_width(), 4 * model.kv_width()};
}

// One document of C = 128 tokens on N = 4 ranks, chunks of c = C / 2N = 16: rank r attends chunk r to r + 1 chunks and
// chunk 7 - r to 8 - r, 9 chunks in all. K and V in bf16: w bytes a row together, q a row of Q.
TEST(FrameworkCopies, Llama3OfOneDocument) {
  const RingCase of = case_of({kTokens});
  const auto [q, w] = widths_of(of);
  const std::int64_t local = kTokens / kFrameworkRanks, chunk = kTokens / (2 * kFrameworkRanks), seen = 9 * chunk;
  for (int rank = 0; rank < kFrameworkRanks; ++rank) {
    auto copies = copies_of("allgather-cp", of, rank);
    EXPECT_EQ(copies["k_pack"].bytes + copies["v_pack"].bytes, 2 * local * w);
    EXPECT_EQ(copies["kv_order"].bytes, 2 * kTokens * w);
    EXPECT_EQ(copies["kv_order"].launches, 1);
    EXPECT_EQ(copies["kv_order"].slices, 2U * kFrameworkRanks - 1);  // the last rank's two chunks adjoin
    EXPECT_EQ(copies.count("kv_slices0"), 0U);                       // views
    EXPECT_EQ(copies["outputs_join"].bytes, 2 * local * q);
    EXPECT_EQ(copies["dk_all_zero"].bytes + copies["dv_all_zero"].bytes, kTokens * w);
    EXPECT_EQ(copies["dk_zero0"].bytes + copies["dv_zero0"].bytes, (rank + 1) * chunk * w);
    EXPECT_EQ(copies["dk_zero1"].bytes + copies["dv_zero1"].bytes, (8 - rank) * chunk * w);
    EXPECT_EQ(copies["dk_add"].bytes + copies["dv_add"].bytes, 3 * seen * w);
    EXPECT_EQ(copies["dk_add"].launches, 2);
    EXPECT_EQ(copies["dkv_unorder"].bytes, 2 * kTokens * w);
    EXPECT_EQ(copies.count("gathered_zero"), 0U);  // no padding
    EXPECT_EQ(copies["kv_grad_unpack"].bytes, 2 * local * w);
    EXPECT_EQ(copies["dq_all_zero"].bytes + copies["dq_zero0"].bytes + copies["dq_zero1"].bytes, 2 * local * q);
    EXPECT_EQ(copies["dq_join0"].bytes + copies["dq_join1"].bytes, 2 * local * q);
  }
}

// Two documents of C/2: each chunk of 8 tokens of each. A rank's calls see 9 chunks of each document; every chunk of
// every document but the adjoining two of the last rank is a slice, as is each document in each call.
TEST(FrameworkCopies, PerDocOfTwoDocuments) {
  const RingCase of = case_of({kTokens / 2, kTokens / 2});
  const std::int64_t w = widths_of(of).kv, seen = 2 * 9 * kTokens / 16;
  for (int rank = 0; rank < kFrameworkRanks; ++rank) {
    auto copies = copies_of("per-doc-cp", of, rank);
    EXPECT_EQ(copies["gather_list"].bytes, 2 * kTokens * w);
    EXPECT_EQ(copies["kv_order"].bytes, 2 * kTokens * w);
    EXPECT_EQ(copies["kv_order"].launches, 1);
    EXPECT_EQ(copies["kv_order"].slices, 2U * 2 * kFrameworkRanks);
    EXPECT_EQ(copies["dkv_unorder"].slices, 2U * 2 * kFrameworkRanks);
    EXPECT_EQ(copies["kv_slices0"].bytes + copies["kv_slices1"].bytes, 2 * seen * w);
    EXPECT_EQ(copies["kv_slices0"].slices + copies["kv_slices1"].slices, 4U);
    EXPECT_EQ(copies["dk_add"].bytes + copies["dv_add"].bytes, 3 * seen * w);
    EXPECT_EQ(copies["dk_add"].launches + copies["dv_add"].launches, 8);
  }
}

// Whole documents of an even share: nothing is gathered or sent, own rows are copied twice (into order, into slices).
TEST(FrameworkCopies, FlashCpOfWholeDocuments) {
  const RingCase of = case_of({32, 32, 32, 32});
  const std::int64_t w = widths_of(of).kv;
  auto copies = copies_of("flashcp", of, 1, {{"choose", "imbalance"}});
  EXPECT_EQ(copies.count("kv_order"), 0U);
  EXPECT_EQ(copies["kv_order_own"].bytes, 2 * 32 * w);
  EXPECT_EQ(copies["kv_slices0"].bytes, 2 * 32 * w);
  EXPECT_EQ(copies.count("kv_slices1"), 0U);
  EXPECT_EQ(copies["dkv_own"].bytes, 2 * 32 * w);
}

// Zigzag of one document, member r: steps 1 .. r see half the keys, the others half the queries. Sums are fp32: twice
// the bytes of bf16. The first step's output, dQ, dK and dV are cast, and so are the four sums at the end.
TEST(FrameworkCopies, ZigzagOfOneDocument) {
  const RingCase of = case_of({kTokens});
  const auto [q, w] = widths_of(of);
  const std::int64_t local = kTokens / kFrameworkRanks, half = local / 2;
  for (int rank = 0; rank < kFrameworkRanks; ++rank) {
    const std::int64_t half_keys = rank, half_queries = kFrameworkRanks - 1 - rank;
    auto copies = copies_of("zigzag-cp", of, rank);
    EXPECT_EQ(copies.count("kv_half") + copies.count("q_half") + copies.count("dq_half"), 0U);  // slices
    EXPECT_EQ(copies["output_to_fp32"].bytes, local * 3 * q);
    EXPECT_EQ(copies["output_to_bf16"].bytes, local * 3 * q);
    EXPECT_EQ(copies["output_scatter"].bytes, half_queries * 2 * half * 2 * q);
    EXPECT_EQ(copies["dq_scatter"].bytes, half_queries * 2 * half * 2 * q);
    EXPECT_EQ(copies["dq_add"].bytes, (half_keys * local + half_queries * half) * 5 * q);
    EXPECT_EQ(copies["kv_grad_add"].bytes, (half_keys * half + half_queries * local) * 5 * w);
    EXPECT_EQ(copies["kv_grad_scatter"].bytes, half_keys * 2 * half * 2 * w);
    EXPECT_EQ(copies["kv_grad_to_fp32"].bytes + copies["kv_grad_to_bf16"].bytes, 2 * local * 3 * w);
  }
}

// Of two documents of half as many tokens: the halves of both are taken by masks, as many rows in all.
TEST(FrameworkCopies, ZigzagOfTwoDocumentsTakesHalvesByMasks) {
  const RingCase of = case_of({kTokens / 2, kTokens / 2});
  const auto [q, w] = widths_of(of);
  const std::int64_t half = kTokens / kFrameworkRanks / 2;
  for (int rank = 0; rank < kFrameworkRanks; ++rank) {
    const std::int64_t half_keys = rank, half_queries = kFrameworkRanks - 1 - rank;
    auto copies = copies_of("zigzag-cp", of, rank);
    EXPECT_EQ(copies["kv_half"].bytes, 2 * half_keys * 2 * half * w);  // both passes
    EXPECT_EQ(copies["q_half"].bytes, half_queries > 0 ? 2 * 2 * half * q : 0);
    EXPECT_EQ(copies["dq_half"].bytes, half_queries * 2 * half * 2 * q);
    EXPECT_EQ(copies["kv_grad_half"].bytes, half_keys * 2 * half * 2 * w);
    // What the host lists and sends beside the ops' own: of K and V apart, of log-sum-exps, of what is put back.
    const auto waits_of = [&](const char* label, HostStall stall, std::int64_t ops) {
      const std::map<HostStall, std::int64_t> wanted = {{stall, ops}};
      EXPECT_EQ(copies[label].stalls, ops > 0 ? wanted : decltype(wanted){}) << label;
    };
    waits_of("kv_half", HostStall::kMaskedIndex, 2 * half_keys);
    // The backward pass takes the output once, without log-sum-exps.
    const std::map<HostStall, std::int64_t> halves = {{HostStall::kNone, 1}, {HostStall::kMaskedIndex, half_queries}};
    EXPECT_EQ(copies["output_half"].stalls, half_queries > 0 ? halves : decltype(halves){});
    waits_of("output_scatter", HostStall::kMaskedIndices, half_queries);
    waits_of("dq_scatter", HostStall::kMaskedIndex, half_queries);
    waits_of("kv_grad_half", HostStall::kMaskedIndex, half_keys);
    waits_of("kv_grad_scatter", HostStall::kMaskedIndices, half_keys);
  }
}

// As the benchmark of MagiAttention runs Transformer Engine's ring: the steps see `rows` rows of Q and `keys` of keys,
// once a pass.
TEST(FrameworkCopies, PaddedRingOfOneDocument) {
  const RingCase of = case_of({kTokens});
  const auto [q, w] = widths_of(of);
  const std::int64_t local = kTokens / kFrameworkRanks, half = local / 2;
  for (int rank = 0; rank < kFrameworkRanks; ++rank) {
    const std::int64_t half_keys = rank, half_queries = kFrameworkRanks - 1 - rank;
    const std::int64_t rows = local + half_keys * local + half_queries * half;
    const std::int64_t keys = local + half_keys * half + half_queries * local;
    auto copies = copies_of("te-p2p", of, rank);
    EXPECT_EQ(copies["q_half"].bytes, 2 * half_queries * 2 * half * q);  // both passes
    EXPECT_EQ(copies["kv_half"].bytes, 2 * half_keys * 2 * half * w);
    EXPECT_EQ(copies["q_unpad"].bytes, 2 * 2 * rows * q);
    EXPECT_EQ(copies["kv_unpad"].bytes, 2 * 2 * keys * w);
    EXPECT_EQ(copies["output_pad"].bytes, 2 * rows * q);
    EXPECT_EQ(copies["output_first"].bytes, 2 * local * q);
    EXPECT_EQ(copies["pad_zero"].bytes, (2 * rows + local) * q + keys * w);
    EXPECT_EQ(copies["output_unpad"].bytes, 2 * rows * q);
    EXPECT_EQ(copies["do_unpad"].bytes, 2 * rows * q);
    EXPECT_EQ(copies["dq_pad"].bytes, 2 * rows * q);
    EXPECT_EQ(copies["dq_add"].bytes, 3 * rows * q);
    EXPECT_EQ(copies["kv_grad_pad"].bytes + copies["kv_grad_join"].bytes, 4 * keys * w);
    // Hybrid context parallelism runs that ring for a document that takes all ranks.
    for (const auto& [label, one] : copies_of("hybrid-cp", of, rank, {{"documents", "one-by-one"}})) {
      EXPECT_EQ(one.bytes, copies[label].bytes) << label;
    }
  }
}

// Its gather: all keys put into token order in both passes, a call's taken out of them again; dK and dV of both calls
// as zeros of all rows, what they see put there, and added whole.
TEST(FrameworkCopies, PaddedGatherOfOneDocument) {
  const RingCase of = case_of({kTokens});
  const auto [q, w] = widths_of(of);
  const std::int64_t local = kTokens / kFrameworkRanks, seen = 9 * kTokens / (2 * kFrameworkRanks);
  for (int rank = 0; rank + 1 < kFrameworkRanks; ++rank) {  // the last rank's chunks adjoin: one call
    auto copies = copies_of("te-allgather", of, rank);
    EXPECT_EQ(copies["kv_order"].bytes, 2 * 2 * kTokens * w);  // both passes
    EXPECT_EQ(copies["kv_order"].launches, 2);
    EXPECT_EQ(copies["kv_slices0"].bytes + copies["kv_slices1"].bytes, 2 * 2 * seen * w);
    EXPECT_EQ(copies["q_unpad"].bytes, 2 * 2 * 2 * local * q);  // copied out and gathered, both passes
    EXPECT_EQ(copies["output_unpad"].bytes, 2 * 2 * local * q);
    EXPECT_EQ(copies["do_unpad"].bytes, 2 * 2 * local * q);
    EXPECT_EQ(copies["output_pad"].bytes + copies["dq_pad"].bytes, 2 * 2 * local * q);
    EXPECT_EQ(copies["pad_zero"].bytes, 2 * local * q);
    EXPECT_EQ(copies["kv_grad_pad_zero"].bytes, 2 * kTokens * w);
    EXPECT_EQ(copies["kv_grad_pad"].bytes, 2 * seen * w);
    EXPECT_EQ(copies["dk_add"].bytes + copies["dv_add"].bytes, 2 * 3 * kTokens * w);
    EXPECT_EQ(copies["dkv_unorder"].bytes, 2 * kTokens * w);
  }
}

// Ulysses around the same library: all rows of a quarter of the query heads, one of two K/V heads (each on two ranks).
// Packs, orders and joins change the order of rows and heads; one head on a rank is in order after its exchange. Three
// operands forward, five backward; one result put into zeros forward, three backward.
void expect_ulysses(const RingCase& of, const ModelShape& model) {
  const std::int64_t heads[2] = {model.q_heads / kFrameworkRanks,
                                 std::max<std::int64_t>(1, model.kv_heads / kFrameworkRanks)};
  const std::set<EagerKernel> permuted = {EagerKernel::kPermutedRows};
  const std::int64_t q = 2 * heads[0] * model.head_dim, kv = 2 * heads[1] * model.head_dim;
  for (int rank = 0; rank < kFrameworkRanks; ++rank) {
    auto copies = copies_of("ulysses", of, rank);
    for (const std::string name : {"q", "k", "v"}) {
      const std::int64_t moved = 2 * kTokens * (name == "q" ? q : kv);
      const std::int64_t ordered = heads[name == "q" ? 0 : 1] > 1 ? moved : 0;
      EXPECT_EQ(copies[name + "_order"].bytes, ordered) << name;
      EXPECT_EQ(copies[name + "_unpad"].bytes, 2 * moved) << name;  // both passes
      EXPECT_EQ(copies["d" + name + "_pad"].bytes, moved) << name;
      EXPECT_EQ(copies["d" + name + "_order"].bytes, ordered) << name;
      EXPECT_EQ(copies[name + "_pack"].kernels, permuted) << name;
      EXPECT_EQ(copies["d" + name + "_unpack"].kernels, permuted) << name;
      EXPECT_EQ(copies[name + "_unpad"].kernels, std::set<EagerKernel>{EagerKernel::kNone}) << name;
      if (ordered == 0) continue;
      EXPECT_EQ(copies[name + "_order"].kernels, permuted) << name;
      EXPECT_EQ(copies["d" + name + "_order"].kernels, permuted) << name;
    }
    for (const char* label : {"output_pad", "output_unpad", "do_unpad"}) {
      EXPECT_EQ(copies[label].bytes, 2 * kTokens * q) << label;
    }
    EXPECT_EQ(copies["o_unpack"].kernels, permuted);
    EXPECT_EQ(copies["do_pack"].kernels, permuted);
    EXPECT_EQ(copies["pad_zero"].bytes, 2 * kTokens * (q + kv));
    EXPECT_EQ(copies["pad_zero"].launches, 4);
  }
}

TEST(FrameworkCopies, UlyssesOfPaddedRowsAndOneHeadARank) {
  const RingCase of = case_of({kTokens - 28, 28});
  expect_ulysses(of, ring_model(of));
}

TEST(FrameworkCopies, UlyssesOfTwoHeadsARank) {
  RingCase of = case_of({kTokens});
  of.q_heads = 8;
  for (const std::int64_t kv_heads : {4, 8}) {
    of.kv_heads = kv_heads;
    expect_ulysses(of, ring_model(of));
  }
}

// The host enqueues one exchange after the other: a pack comes behind what the exchange before it brought, and behind
// the copy of that where there is one; a call behind the last exchange.
TEST(FrameworkCopies, UlyssesExchangesFollowEachOther) {
  RingCase of = case_of({kTokens});
  of.q_heads = 8;
  of.kv_heads = 4;
  const Planned planned = planned_step("ulysses", of, {});
  ASSERT_TRUE(planned.has_value()) << planned.error();
  std::map<std::string, Op> ops;
  Cursor cursor(0);
  for (OpInstance at; cursor.next(*planned->schedule, at);) {
    if (at.layer == 1) ops.emplace(at.op->label, *at.op);  // the forward pass comes first
  }
  const auto follows = [&](const std::string& later, const std::string& earlier) {
    SCOPED_TRACE(later + " behind " + earlier);
    ASSERT_EQ(ops.count(later) + ops.count(earlier), 2U);
    ASSERT_NE(ops[earlier].record, kNoEvent);
    const std::vector<EventSlot> waits(ops[later].waits.begin(), ops[later].waits.end());
    EXPECT_NE(std::find(waits.begin(), waits.end(), ops[earlier].record), waits.end());
  };
  follows("q_order", "q_to_heads");
  follows("k_pack", "q_to_heads");
  follows("v_pack", "k_to_heads");
  follows("q_unpad", "v_to_heads");
  follows("dq_to_tokens", "dq_order");
  follows("dk_to_tokens", "dq_unpack");
  follows("dv_to_tokens", "dk_unpack");
}

TEST(FrameworkCopies, TheShippedFileHasEveryKind) {
  const auto eager = read_eager_kernels(data_directory());
  ASSERT_TRUE(eager.has_value());
  for (int kind = 1; kind <= static_cast<int>(EagerKernel::kMergedPartials); ++kind) {
    const char* name = to_string(static_cast<EagerKernel>(kind));
    EXPECT_NE((*eager)->kernel(name), nullptr) << name;
  }
  for (int kind = 1; kind <= static_cast<int>(HostStall::kMaskedIndices); ++kind) {
    const char* name = to_string(static_cast<HostStall>(kind));
    EXPECT_NE((*eager)->stall(name), nullptr) << name;
  }
}

TEST(FrameworkCopies, OptionsAreChecked) {
  const auto faults = [](const std::string& name, const Json& options) {
    Errors errors;
    find_strategy(name)->check_options(options, "s.json", "/strategies/0", errors);
    std::vector<std::string> texts;
    for (const InputError& error : errors) texts.push_back(error.to_string());
    return texts;
  };
  for (const char* name : {"allgather-cp", "per-doc-cp", "flashcp", "ring-cp", "zigzag-cp", "te-p2p", "te-allgather",
                           "hybrid-cp", "ulysses"}) {
    Json given = {{"copies", "framework"}};
    if (std::string(name) == "hybrid-cp") given["documents"] = "one-by-one";
    EXPECT_TRUE(faults(name, given).empty()) << name;
    EXPECT_EQ(faults(name, {{"copies", "frame"}}),
              std::vector<std::string>{"s.json: /strategies/0/copies: is \"frame\"; expected one of fused, framework; "
                                       "did you mean \"framework\"?"});
  }
  EXPECT_EQ(faults("hybrid-cp", {{"copies", "framework"}}),
            std::vector<std::string>{"s.json: /strategies/0/copies: is \"framework\" without rings; expected "
                                     "\"documents\": \"one-by-one\" beside it"});
  EXPECT_EQ(faults("flashcp", {{"copies", "framework"}, {"overlap", true}}),
            std::vector<std::string>{"s.json: /strategies/0/copies: is \"framework\" beside an exact exchange or "
                                     "overlap; expected a padded exchange without overlap for that"});
}

}  // namespace
}  // namespace longhaul
