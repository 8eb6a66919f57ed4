// Schedules of the context-parallel family: bytes of every layer in closed form, launches, what is held and when.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "sim/strategies/context_parallel/dispatch.h"
#include "sim/strategies/context_parallel/flashcp.h"
#include "sim/strategies/registry.h"
#include "tests/unit/strategies/ring_case.h"

namespace longhaul {
namespace {

constexpr int kRanks = 4;

RingCase mixed_case() {
  RingCase of;
  of.cp = kRanks;
  of.sequences = {{37, 1, 8, 60, 12, 5}};
  return of;
}

std::shared_ptr<const Schedule> schedule_of(const std::string& name, const RingCase& of, const Json& options = {}) {
  StrategyRequest request = ring_request(of);
  if (!options.is_null()) request.options = options;
  const Planned planned = find_strategy(name)->plan(request);
  EXPECT_TRUE(planned.has_value()) << planned.error();
  return planned->schedule;
}

std::vector<PlannedDocument> documents_of(const RingCase& of) {
  std::vector<PlannedDocument> documents;
  for (const std::int64_t tokens : of.sequences.front()) {
    documents.push_back({static_cast<DocumentId>(documents.size()), tokens});
  }
  return documents;
}

// Bytes of K and V a row: 2 x kv_width x 2.
std::int64_t row_bytes(const RingCase& of) { return 4 * ring_model(of).kv_width(); }

struct Volume {
  std::int64_t sent = 0, received = 0, calls = 0;
  bool operator==(const Volume&) const = default;
};

// Of one rank in the collectives of its context group, layer 1, by pass. Ring collectives send and receive (N-1) times
// a rank's part.
std::map<Pass, Volume> volumes(const Schedule& schedule, int rank) {
  std::map<Pass, Volume> of_pass;
  Cursor cursor(rank);
  OpInstance at;
  while (cursor.next(schedule, at)) {
    if (at.op->kind != OpKind::kCollective || at.layer != 1) continue;
    if (schedule.roles[static_cast<std::size_t>(at.op->role)] != "context" || is_empty(schedule, at)) continue;
    Volume& volume = of_pass[at.op->pass];
    ++volume.calls;
    if (at.op->collective != CollectiveKind::kExchange) {
      volume.sent += (kRanks - 1) * collective_buffer_bytes(schedule, at);
      volume.received += (kRanks - 1) * collective_buffer_bytes(schedule, at);
      continue;
    }
    for (const PeerBytes& peer : exchange_bytes(schedule, at)) {
      volume.sent += peer.send;
      volume.received += peer.receive;
    }
  }
  return of_pass;
}

int launches(const Schedule& schedule, int rank, Pass pass) {
  int count = 0;
  Cursor cursor(rank);
  OpInstance at;
  while (cursor.next(schedule, at)) {
    count += at.op->kind == OpKind::kAttention && at.layer == 1 && at.op->pass == pass && !is_empty(schedule, at);
  }
  return count;
}

// Documents are padded to 2N = 8 each: 40 + 8 + 8 + 64 + 16 + 8 = 144 rows, 36 a rank, M = 36 rows of K and V.
TEST(TransformerEngine, RingSendsTwiceNMinusOneBlocksBackward) {
  const RingCase of = mixed_case();
  const auto schedule = schedule_of("te-p2p", of);
  const std::int64_t block = 36 * row_bytes(of);
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto volume = volumes(*schedule, rank);
    EXPECT_EQ(volume.at(Pass::kForward), (Volume{3 * block, 3 * block, 3}));
    // Messages of K, V; K, V and dK, dV; the same; dK, dV.
    EXPECT_EQ(volume.at(Pass::kBackward), (Volume{6 * block, 6 * block, 4}));
    EXPECT_EQ(launches(*schedule, rank, Pass::kForward), kRanks);
    EXPECT_EQ(launches(*schedule, rank, Pass::kBackward), kRanks);
  }
}

// In launch order: K, V blocks held at once. Forward: the rank's own send block goes with the first hop, N - 1 received
// ones stay to the layer's end, the last of them to its backward pass.
TEST(TransformerEngine, ForwardKeepsABufferAStep) {
  const auto schedule = schedule_of("te-p2p", mixed_case());
  std::map<Pass, std::size_t> most;
  std::set<std::uint64_t> held;
  Cursor cursor(2);
  OpInstance at;
  const auto is_block = [&](const TensorRef& ref) {
    const std::string& name = schedule->tensors[static_cast<std::size_t>(ref.kind)].name;
    return name.starts_with("kv_block_") && !name.starts_with("kv_block_grad");
  };
  while (cursor.next(*schedule, at)) {
    for (const TensorRef& ref : at.op->acquire) {
      if (is_block(ref)) held.insert(resolve(at, ref).key());
    }
    if (at.layer == 0) most[at.op->pass] = std::max(most[at.op->pass], held.size());
    for (const TensorRef& ref : at.op->release) {
      if (is_block(ref)) held.erase(resolve(at, ref).key());
    }
  }
  EXPECT_EQ(most.at(Pass::kForward), 3u);   // blocks 1 .. 3; the send block of step 0 has gone
  EXPECT_EQ(most.at(Pass::kBackward), 2u);  // the block at hand and the next
  EXPECT_TRUE(held.empty());
}

// K and V gathered by a collective each, in the backward pass again, then a reduce-scatter each; two launches a pass.
TEST(TransformerEngine, AllGatherGathersAgainBackward) {
  const RingCase of = mixed_case();
  const auto schedule = schedule_of("te-allgather", of);
  const std::int64_t gathered = (kRanks - 1) * 36 * row_bytes(of);
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto volume = volumes(*schedule, rank);
    EXPECT_EQ(volume.at(Pass::kForward), (Volume{gathered, gathered, 2}));
    EXPECT_EQ(volume.at(Pass::kBackward), (Volume{2 * gathered, 2 * gathered, 4}));
    EXPECT_EQ(launches(*schedule, rank, Pass::kForward), 2);
    EXPECT_EQ(launches(*schedule, rank, Pass::kBackward), 2);
  }
}

// The whole sequence of 123 tokens in 4 shards of 31 rows: rank 3 holds most pairs of a single document.
TEST(PlainRing, SlowestRankHasTwiceTheMeanLessOne) {
  for (const int ranks : {2, 4, 8}) {
    const CpPlan plan = *plan_contiguous_cp(std::vector<PlannedDocument>{{0, 4096}}, ranks);
    const CpLoads loads = cp_loads(plan);
    const double mean = static_cast<double>(loads.pairs) / ranks;
    // ((N-1) L^2 + L (L+1) / 2) / mean -> (2N - 1) / N for long sequences (flashcp.md 2.3).
    EXPECT_NEAR(static_cast<double>(loads.pairs_max) / mean, (2.0 * ranks - 1) / ranks, 0.005);
  }
  const RingCase of = mixed_case();
  const auto schedule = schedule_of("ring-cp", of);
  const std::int64_t block = 31 * row_bytes(of);
  EXPECT_EQ(volumes(*schedule, 0).at(Pass::kForward), (Volume{3 * block, 3 * block, 3}));
  EXPECT_EQ(volumes(*schedule, 0).at(Pass::kBackward), (Volume{7 * block, 7 * block, 7}));
}

// The packed sequence in 2N chunks of 16 rows, where documents cut each for itself pad to 36 rows a rank.
TEST(Zigzag, CutsTheSequenceOrEachDocument) {
  const RingCase of = mixed_case();
  for (const auto& [cut, rows] : {std::pair("sequence", 32), std::pair("document", 36)}) {
    const auto schedule = schedule_of("zigzag-cp", of, {{"cut", cut}});
    EXPECT_EQ(volumes(*schedule, 1).at(Pass::kForward).sent, 3 * rows * row_bytes(of)) << cut;
  }
}

// An exact exchange brings each rank what it needs, no more, and takes back as many gradients; nothing is padded.
TEST(FlashCpVariants, ExactExchangeIsTheNeed) {
  const RingCase of = mixed_case();
  const CpPlan plan = *plan_flashcp(documents_of(of), kRanks);
  const CpLoads loads = cp_loads(plan);
  ASSERT_GT(loads.need_max, 0);
  for (const bool overlap : {false, true}) {
    const auto schedule = schedule_of("flashcp", of, {{"exchange", "exact"}, {"overlap", overlap}});
    std::int64_t sent = 0, needed = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      auto volume = volumes(*schedule, rank);
      const std::int64_t need = loads.ranks[static_cast<std::size_t>(rank)].need * row_bytes(of);
      EXPECT_EQ(volume[Pass::kForward].received, need);
      EXPECT_EQ(volume[Pass::kBackward].sent, need);
      EXPECT_EQ(volume[Pass::kForward].sent, volume[Pass::kBackward].received);
      sent += volume[Pass::kForward].sent;
      needed += need;
    }
    EXPECT_EQ(sent, needed);
  }
}

// Two launches where some shard looks back: what needs no gathered row does not wait for it.
TEST(FlashCpVariants, OverlapRunsOwnShardsFirst) {
  const RingCase of = mixed_case();
  const auto plain = schedule_of("flashcp", of);
  const auto overlapped = schedule_of("flashcp", of, {{"overlap", true}});
  EXPECT_EQ(volumes(*plain, 0), volumes(*overlapped, 0));
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(launches(*plain, rank, Pass::kForward), 1);
    std::set<EventSlot> recorded_by_gather;
    Cursor cursor(rank);
    OpInstance at;
    int own = 0;
    while (cursor.next(*overlapped, at)) {
      if (at.layer != 1 || at.op->pass != Pass::kForward) continue;
      if (at.op->kind == OpKind::kCollective) recorded_by_gather.insert(at.op->record);
      if (at.op->label != "attention_own") continue;
      ++own;
      for (const EventSlot slot : at.op->waits) EXPECT_EQ(recorded_by_gather.count(slot), 0u);
    }
    EXPECT_EQ(own, 1);
  }
}

// Ranks in nodes of 2. Documents that fit a node stay on one. With all eight cut over two ranks nothing is left to even
// out remainders: they are cut over all ranks then, and every token still stands on one rank.
TEST(FlashCpVariants, SplitDocumentsStayInsideNodes) {
  const std::vector<PlannedDocument> documents = {{0, 40}, {1, 38}, {2, 20}, {3, 22},
                                                  {4, 10}, {5, 10}, {6, 9},  {7, 11}};
  FlashCpOptions options;
  options.ranks_per_node = 2;
  const auto nodes_of = [](const CpPlan& plan) {  // documents on more than one node
    std::map<DocumentId, std::set<std::size_t>> nodes;
    for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
      for (const Shard& shard : plan.ranks[rank]) {
        if (!shard.is_padding()) nodes[shard.document].insert(rank / 2);
      }
    }
    return std::count_if(nodes.begin(), nodes.end(), [](const auto& entry) { return entry.second.size() > 1; });
  };
  for (std::int64_t per_doc = 0; per_doc <= 6; ++per_doc) {
    const CpPlan inside = *plan_flashcp_with(documents, 4, per_doc, options);
    const CpPlan anywhere = *plan_flashcp_with(documents, 4, per_doc, {});
    EXPECT_LE(nodes_of(inside), 1) << per_doc;  // nodes hold 80 tokens each: one move between them at most
    EXPECT_EQ(cp_loads(inside).pairs, cp_loads(anywhere).pairs);
    for (const CpRankLoad& load : cp_loads(inside).ranks) EXPECT_EQ(load.tokens, 40);
    if (per_doc > 1) {
      EXPECT_GT(nodes_of(anywhere), nodes_of(inside)) << per_doc;
    }
  }
}

TEST(FlashCpVariants, CutsThatFitNoNodeGoOverAllRanks) {
  const std::vector<PlannedDocument> documents = {{0, 40}, {1, 38}, {2, 20}, {3, 22},
                                                  {4, 10}, {5, 10}, {6, 9},  {7, 11}};
  FlashCpOptions options;
  options.ranks_per_node = 2;
  EXPECT_EQ(*plan_flashcp_with(documents, 4, 8, options), *plan_flashcp_with(documents, 4, 8, {}));
}

// Each rank receives what it needs once, in as many casts as there are stages, again in the backward pass, and returns
// one gradient for each row that it received.
TEST(MagiSchedule, CastsTheNeedOnceAPass) {
  const RingCase of = mixed_case();
  const CpPlan plan = *plan_magi(documents_of(of), kRanks, 8);
  const CpLoads loads = cp_loads(plan);
  for (const auto& [stages, deal] : {std::pair(1, "in-order"), {2, "in-order"}, {3, "in-order"}, {2, "shuffled"}}) {
    const auto schedule = schedule_of("magi", of, {{"chunk_tokens", 8}, {"stages", stages}, {"deal", deal}});
    std::int64_t sent_forward = 0, received_forward = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      auto volume = volumes(*schedule, rank);
      const std::int64_t need = loads.ranks[static_cast<std::size_t>(rank)].need * row_bytes(of);
      EXPECT_EQ(volume[Pass::kForward].received, need);
      EXPECT_EQ(volume[Pass::kBackward].received + volume[Pass::kBackward].sent,
                2 * (volume[Pass::kForward].sent + need));
      sent_forward += volume[Pass::kForward].sent;
      received_forward += need;
    }
    EXPECT_EQ(sent_forward, received_forward);
  }
}

// Documents that are whole on a rank move nothing.
TEST(SkrullSchedule, GathersDistributedDocumentsOnly) {
  RingCase of;
  of.cp = kRanks;
  of.sequences = {{10, 10, 10, 10, 9, 9, 9, 9}};
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_TRUE(volumes(*schedule_of("skrull", of), rank).empty());
    EXPECT_TRUE(volumes(*schedule_of("hybrid-cp", of), rank).empty());
  }
  of.sequences = {{64, 10, 10, 10}};
  const auto schedule = schedule_of("skrull", of);
  // 64 tokens in 8 chunks of 8: every rank sends its two chunks, rank 0 only the first (the other is the document's
  // last), padded to 16 rows.
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::int64_t bytes = (kRanks - 1) * 16 * row_bytes(of);
    EXPECT_EQ(volumes(*schedule, rank).at(Pass::kForward), (Volume{bytes, bytes, 1}));
  }
}

std::vector<std::string> option_faults(const std::string& name, const Json& options) {
  Errors errors;
  find_strategy(name)->check_options(options, "study.json", "/strategies/0", errors);
  std::vector<std::string> texts;
  for (const auto& error : errors) texts.push_back(error.to_string());
  return texts;
}

TEST(CpOptions, FaultsAreNamed) {
  using Texts = std::vector<std::string>;
  const std::string at = "study.json: /strategies/0/";
  EXPECT_EQ(option_faults("flashcp", {{"imbalance_limit", 0.99}}),
            Texts{at + "imbalance_limit: is 0.99; expected a number from 1 to 100"});
  EXPECT_EQ(option_faults("flashcp", {{"exchange", "a2a"}}),
            Texts{at + "exchange: is \"a2a\"; expected one of padded, exact"});
  EXPECT_EQ(
      option_faults("flashcp", {{"choose", "imbalance"}, {"per_doc", "time"}}),
      Texts{at + "per_doc: is \"time\" beside \"choose\": \"imbalance\"; expected \"choose\": \"time\" for that"});
  EXPECT_EQ(option_faults("zigzag-cp", {{"cut", "tokens"}}),
            Texts{at + "cut: is \"tokens\"; expected one of document, sequence"});
  EXPECT_EQ(option_faults("magi", {{"chunk_tokens", 0}, {"stages", 9}}),
            (Texts{at + "chunk_tokens: is 0; expected an integer from 1 to 1099511627776",
                   at + "stages: is 9; expected an integer from 1 to 8"}));
  EXPECT_EQ(option_faults("magi", {{"deal", "random"}}),
            Texts{at + "deal: is \"random\"; expected one of in-order, shuffled"});
  EXPECT_EQ(option_faults("skrull", {{"bucket_tokens", -1}}),
            Texts{at + "bucket_tokens: is -1; expected an integer from 1 to 1099511627776"});
  EXPECT_EQ(option_faults("hybrid-cp", {{"rank_tokens", 0.5}}),
            Texts{at + "rank_tokens: is 0.5; expected an integer from 1 to 1099511627776"});
  EXPECT_EQ(option_faults("hybrid-cp", {{"documents", "one by one"}}),
            Texts{at + "documents: is \"one by one\"; expected one of together, one-by-one; did you mean "
                       "\"one-by-one\"?"});
  EXPECT_EQ(option_faults("wlb-cp", {{"packing_limit", 2}}),
            Texts{at + "packing_limit: is given for packing of fixed length; expected \"packing\": \"variable\" or "
                       "\"delayed\" beside it"});
  EXPECT_TRUE(option_faults("wlb-cp", {{"packing", "variable"}, {"packing_limit", 2}}).empty());
}

// As many tokens as ranks can be shared, though some ranks may hold nothing but padding; fewer cannot.
TEST(CpFamily, MoreRanksThanTokensIsRefused) {
  RingCase enough, few;
  enough.cp = few.cp = kRanks;
  enough.sequences = {{3, 1}};
  few.sequences = {{2, 1}};
  int refused = 0;
  for (const Strategy& strategy : strategies()) {
    if (strategy.family != StrategyFamily::kContext || strategy.objective != ObjectiveKind::kCausalLm) continue;
    const Planned planned = strategy.plan(ring_request(enough));
    EXPECT_TRUE(planned.has_value()) << strategy.name << ": " << planned.error();
    const Planned refusal = strategy.plan(ring_request(few));
    ASSERT_FALSE(refusal.has_value()) << strategy.name;
    EXPECT_EQ(refusal.error(), "4 ranks cannot share a sequence of 3 tokens") << strategy.name;
    ++refused;
  }
  EXPECT_GE(refused, 11);
}

// Documents that do not fill the micro-batches of variable length.
TEST(CpFamily, PackingNeedsADocumentAMicroBatch) {
  RingCase of;
  of.cp = kRanks;
  of.sequences = {{5}, {5}};
  StrategyRequest request = ring_request(of);
  request.options = {{"packing", "variable"}};
  EXPECT_TRUE(find_strategy("wlb-cp")->plan(request).has_value());
  auto batch = std::make_shared<Batch>(*request.batch);
  batch->sequences[0].documents = {0, 1};
  batch->sequences[1].documents = {};
  batch->documents = {4, 9};
  batch->sequences[0].tokens = 13;
  batch->sequences[1].tokens = 0;
  request.batch = batch;
  EXPECT_TRUE(find_strategy("wlb-cp")->plan(request).has_value());
  batch = std::make_shared<Batch>(*batch);
  batch->sequences[0].documents = {0};
  batch->documents = {13};
  request.batch = batch;
  EXPECT_EQ(find_strategy("wlb-cp")->plan(request).error(),
            "there are fewer documents than micro-batches to pack them into");
}

}  // namespace
}  // namespace longhaul
