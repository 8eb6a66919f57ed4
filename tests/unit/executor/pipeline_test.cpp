// Pipeline edges: bubbles, and 1F1B on a hand-made schedule.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/executor/hand_made.h"

namespace longhaul {
namespace {

using namespace hand_made;

constexpr GroupRole kDownOut = 0, kDownIn = 1, kUpOut = 2, kUpIn = 3;
constexpr TensorKindId kActivation = 2, kIn = 3, kOut = 4, kGradientIn = 5, kGradientOut = 6;
constexpr std::int64_t kRows = 4, kActivationBytes = 4 * 8000 * 2, kEdgeBytes = 4 * 8 * 2;

TensorRef chunk_tensor(TensorKindId kind) {
  TensorRef ref;
  ref.kind = kind;
  ref.has_layer = false;
  return ref;
}

View view(TensorKindId kind, std::int64_t columns, Access access) {
  View result;
  result.tensor = chunk_tensor(kind);
  result.columns = columns;
  result.access = access;
  return result;
}

// Exchange 0 sends to member 1, exchange 1 receives from member 0.
Op edge(std::string label, GroupRole role, TensorKindId tensor, bool sends) {
  Op op;
  op.kind = OpKind::kCollective;
  op.collective = CollectiveKind::kExchange;
  op.label = std::move(label);
  op.role = role;
  op.stream = static_cast<StreamId>(kFirstCommunicationStream + role);
  op.pipeline_edge = true;
  CollectivePart part;
  if (sends) {
    part.send = view(tensor, 8, Access::kRead);
    op.release = {chunk_tensor(tensor)};
  } else {
    part.receive = view(tensor, 8, Access::kWrite);
    op.acquire = {chunk_tensor(tensor)};
  }
  part.exchange = sends ? 0 : 1;
  op.parts = {part};
  return op;
}

std::vector<Op> forward(int stage, int stages) {
  std::vector<Op> ops;
  if (stage > 0) ops.push_back(with(edge("receive", kDownIn, kIn, false), {}, 0));
  Op compute = with(kernel("F"), {}, 1);
  compute.acquire = {chunk_tensor(kActivation)};
  compute.operands.push_back(view(kActivation, 8000, Access::kWrite));
  if (stage > 0) {
    compute.waits = {0};
    compute.operands.push_back(view(kIn, 8, Access::kRead));
    compute.release = {chunk_tensor(kIn)};
  }
  if (stage + 1 < stages) {
    compute.acquire.push_back(chunk_tensor(kOut));
    compute.operands.push_back(view(kOut, 8, Access::kWrite));
  }
  ops.push_back(compute);
  if (stage + 1 < stages) ops.push_back(with(edge("send", kDownOut, kOut, true), {1}));
  return ops;
}

std::vector<Op> backward(int stage, int stages) {
  std::vector<Op> ops;
  if (stage + 1 < stages) ops.push_back(with(edge("receive gradient", kUpIn, kGradientIn, false), {}, 2));
  Op compute = with(kernel("B"), {}, 3);
  compute.pass = Pass::kBackward;
  compute.release = {chunk_tensor(kActivation)};
  compute.operands.push_back(view(kActivation, 8000, Access::kRead));
  if (stage + 1 < stages) {
    compute.waits = {2};
    compute.operands.push_back(view(kGradientIn, 8, Access::kRead));
    compute.release.push_back(chunk_tensor(kGradientIn));
  }
  if (stage > 0) {
    compute.acquire = {chunk_tensor(kGradientOut)};
    compute.operands.push_back(view(kGradientOut, 8, Access::kWrite));
  }
  ops.push_back(compute);
  if (stage > 0) ops.push_back(with(edge("send gradient", kUpOut, kGradientOut, true), {3}));
  return ops;
}

Schedule one_f_one_b(int stages, int micro_batches) {
  Schedule schedule = make_schedule(stages, {"down out", "down in", "up out", "up in"});
  const auto add_kind = [&](const char* name, std::int64_t columns, MemoryCategory category) {
    schedule.tensors.push_back({name, 0, 0, columns, ElementType::kBf16, category});
  };
  add_kind("activation", 8000, MemoryCategory::kCheckpoints);
  for (const char* name : {"in", "out", "gradient in", "gradient out"})
    add_kind(name, 8, MemoryCategory::kCommunication);
  const RowListPtr rows = make_row_list({{0, kRows}});
  ShapeSet& shape = schedule.shapes.front();
  shape.row_maps = {make_row_map({{0, TokenView::kClean, 0, kRows}})};
  PeerExchange send;
  send.peer = 1;
  send.send_rows = rows;
  send.send_columns = 8;
  PeerExchange receive;
  receive.peer = 0;
  receive.receive_rows = rows;
  receive.receive_columns = 8;
  shape.exchanges = {std::make_shared<const ExchangeList>(ExchangeList{send}),
                     std::make_shared<const ExchangeList>(ExchangeList{receive})};
  for (int stage = 0; stage + 1 < stages; ++stage) {
    const auto down = static_cast<GroupId>(schedule.groups.size());
    const GroupId up = down + 1;
    schedule.groups.push_back({{stage, stage + 1}});  // each directed edge has a group of its own, the sender first
    schedule.groups.push_back({{stage + 1, stage}});
    RankInfo& above = schedule.ranks[static_cast<std::size_t>(stage)];
    RankInfo& below = schedule.ranks[static_cast<std::size_t>(stage + 1)];
    above.groups[kDownOut] = down;
    below.groups[kDownIn] = down;
    below.groups[kUpOut] = up;
    above.groups[kUpIn] = up;
  }
  for (int stage = 0; stage < stages; ++stage) {
    RankInfo& info = schedule.ranks[static_cast<std::size_t>(stage)];
    info.shapes.assign(static_cast<std::size_t>(micro_batches), 0);
    const auto f = static_cast<SegmentId>(schedule.segments.size());
    schedule.segments.push_back({"forward", forward(stage, stages)});
    schedule.segments.push_back({"backward", backward(stage, stages)});
    const auto b = static_cast<SegmentId>(f + 1);
    Program program;
    program.resident = {step_tensor(kOutKind), step_tensor(kBufferKind)};
    const int warm_up = std::min(micro_batches, stages - stage - 1);
    for (int i = 0; i < warm_up; ++i) program.blocks.push_back({f, 0, 1, 1, i});
    for (int i = 0; i + warm_up < micro_batches; ++i) {
      program.blocks.push_back({f, 0, 1, 1, i + warm_up});
      program.blocks.push_back({b, 0, 1, 1, i});
    }
    for (int i = micro_batches - warm_up; i < micro_batches; ++i) program.blocks.push_back({b, 0, 1, 1, i});
    info.program = static_cast<ProgramId>(schedule.programs.size());
    schedule.programs.push_back(program);
  }
  return schedule;
}

// Every stage works m (F + B) and idles (p - 1)(F + B) (Narayanan et al. 2021, section 2.2); it holds at most
// min(m, p - stage) activations.
TEST(Pipeline, OneFOneBTakesMPlusPMinusOneTimesFPlusB) {
  for (const auto& [p, m] : std::vector<std::pair<int, int>>{{1, 3}, {2, 2}, {4, 8}, {4, 2}, {8, 32}}) {
    const Schedule schedule = one_f_one_b(p, m);
    FixedDurations durations;
    durations.rule = by_label({{"F", 20}, {"B", 40}});
    FixedNetwork network;
    network.rule = [](const CollectiveCall&) { return 0; };
    const Totals totals = simulate(schedule, durations, network);
    EXPECT_EQ(totals.step.ps(), (m + p - 1) * 60) << p << " stages, " << m << " micro-batches";
    for (int stage = 0; stage < p; ++stage) {
      const RankTotals& rank = totals.ranks[static_cast<std::size_t>(stage)];
      EXPECT_EQ(rank.idle().ps(), (p - 1) * 60);
      EXPECT_EQ((rank.bubble + rank.tail).ps(), (p - 1) * 60);
      EXPECT_EQ(rank.peak_categories[static_cast<std::size_t>(MemoryCategory::kCheckpoints)],
                std::min(m, p - stage) * kActivationBytes);
      const std::int64_t edges = (stage + 1 < p ? m : 0) + (stage > 0 ? m : 0);
      EXPECT_EQ(rank.sent_intra_node, edges * kEdgeBytes);
      EXPECT_EQ(rank.received, edges * kEdgeBytes);
    }
    EXPECT_EQ(totals.ranks.back().bubble.ps(), (p - 1) * 20);
  }
}

TEST(Pipeline, WaitForTheSenderIsBubbleAndTheTransferIsExposed) {
  // One micro-batch over two stages: F 0-50, transfer 50-58, F 58-108, B 108-138, transfer to 146, B 146-176.
  const Schedule schedule = one_f_one_b(2, 1);
  FixedDurations durations;
  durations.rule = by_label({{"F", 50}, {"B", 30}});
  FixedNetwork network;
  network.rule = [](const CollectiveCall&) { return 8; };
  const Totals totals = simulate(schedule, durations, network);
  EXPECT_EQ(totals.step.ps(), 176);
  EXPECT_EQ(totals.ranks[1].bubble.ps(), 50);
  EXPECT_EQ(totals.ranks[1].exposed_communication.ps(), 8 + 8);  // its own send is its last op
  EXPECT_EQ(totals.ranks[1].tail.ps(), 30);
  // Stage 0 waits for the gradient from 50 on: the sender arrives at 138, the transfer ends at 146.
  EXPECT_EQ(totals.ranks[0].bubble.ps(), 88);
  EXPECT_EQ(totals.ranks[0].exposed_communication.ps(), 8);
}

TEST(Pipeline, AReceiveThatIsPostedEarlySlowsWhatRunsUntilItsSenderComes) {
  // As above, kernels 1.5 times as long beside a communication kernel. Stage 0's receive of the gradient is there from
  // 0 on: F 0-75, transfer 75-83. Stage 1's receive is over when F runs, and nothing else of it waits: F 83-133, B
  // 133-163, transfer to 171. Stage 0's B runs alone: 171-201.
  const Schedule schedule = one_f_one_b(2, 1);
  FixedDurations durations;
  durations.rule = by_label({{"F", 50}, {"B", 30}});
  durations.beside_communication = 1.5;
  FixedNetwork network;
  network.rule = [](const CollectiveCall&) { return 8; };
  const Totals totals = simulate(schedule, durations, network);
  EXPECT_EQ(totals.step.ps(), 201);
  EXPECT_EQ(totals.ranks[0].contention.ps(), 25);
  EXPECT_EQ(totals.ranks[1].contention.ps(), 0);
  EXPECT_EQ(totals.ranks[1].bubble.ps(), 75);
}

TEST(Pipeline, OneMembersPartOfAnExchange) {
  // A stage between two others: what it sends down is one message to one peer, whatever it receives elsewhere.
  const Schedule schedule = one_f_one_b(3, 1);
  const std::vector<Op>& ops = schedule.segments[2].ops;  // forward of stage 1: receive, F, send
  OpInstance at;
  at.rank = 1;
  at.shape = &schedule.shapes.front();
  for (const std::size_t edge : {std::size_t{0}, std::size_t{2}}) {
    at.op = &ops[edge];
    EXPECT_EQ(member_exchange(schedule, at).largest_message, kEdgeBytes);
    EXPECT_EQ(member_exchange(schedule, at).peers, 1);
    EXPECT_EQ(member_exchange(schedule, at).messages, kEdgeBytes);
    EXPECT_EQ(member_exchange(schedule, at).partners, 1);
  }
}

// Rank 0 sends to ranks 1 and 2 over 8 channels, all of which are there while it waits, and 5 then. A kernel of 300
// beside it, from 10 on, is slowed by 1 + channels / 8: 45 of it are done when the others come at 100, 40 more in the
// transfer of 65, and the other 215 by 380.
TEST(Exchange, AKernelBesideOneGetsBackWhatLeaves) {
  struct ByChannels : FixedDurations {
    double kernel_slowdown(OverlapClass, const Beside& beside, std::int64_t) const override {
      return 1 + beside.channels / 8.0;
    }
  } durations;
  durations.rule = by_label({{"make", 10}, {"x", 300}, {"late", 100}});
  struct EightChannels : FixedNetwork {
    ExchangeChannels exchange_channels(const Schedule&, GroupId, const MemberExchange&) override { return {8, 5}; }
  } network;
  network.rule = [](const CollectiveCall&) { return 65; };
  Schedule schedule = make_schedule(3, {"g"});
  for (const char* name : {"activation", "in", "out"}) {
    schedule.tensors.push_back({name, 0, 0, 8, ElementType::kBf16, MemoryCategory::kCommunication});
  }
  schedule.shapes.assign(3, {});
  const auto peer = [](std::int32_t rank, std::int64_t send, std::int64_t receive) {
    PeerExchange of;
    of.peer = rank;
    of.send_rows = make_row_list({{0, send}});
    of.receive_rows = make_row_list({{0, receive}});
    of.send_columns = of.receive_columns = 8;
    return of;
  };
  const std::vector<ExchangeList> lists = {{peer(1, 4, 0), peer(2, 1, 0)}, {peer(0, 0, 4)}, {peer(0, 0, 1)}};
  add_group(schedule, {0, 1, 2}, 0);
  for (int rank = 0; rank < 3; ++rank) {
    ShapeSet& shape = schedule.shapes[static_cast<std::size_t>(rank)];
    shape.row_maps = {make_row_map({{0, TokenView::kClean, 0, kRows}})};
    shape.exchanges = {std::make_shared<const ExchangeList>(lists[static_cast<std::size_t>(rank)])};
    schedule.ranks[static_cast<std::size_t>(rank)].shapes = {rank};
    Op exchange = edge("exchange", 0, rank == 0 ? kOut : kIn, rank == 0);
    exchange.pipeline_edge = false;
    exchange.parts.front().exchange = 0;
    exchange.release = {chunk_tensor(rank == 0 ? kOut : kIn)};
    Op before = with(kernel(rank == 0 ? "make" : "late"), {}, 0);
    if (rank == 0) {
      before.acquire = {chunk_tensor(kOut)};
      before.operands.push_back(view(kOut, 8, Access::kWrite));
    }
    std::vector<Op> ops = {before, with(exchange, {0})};
    if (rank == 0) ops.push_back(kernel("x"));
    add_program(schedule, rank, ops);
    schedule.programs.back().blocks.front().chunk = 0;
  }
  EXPECT_EQ(simulate(schedule, durations, network).step.ps(), 380);
}

TEST(PipelineDeathTest, SendAndReceiveMustMatch) {
  Schedule schedule = one_f_one_b(2, 1);
  PeerExchange receive;
  receive.peer = 0;
  receive.receive_rows = make_row_list({{0, 3}});
  receive.receive_columns = 8;
  ShapeSet& shape = schedule.shapes.front();
  shape.exchanges[1] = std::make_shared<const ExchangeList>(ExchangeList{receive});
  FixedDurations durations;
  FixedNetwork network;
  EXPECT_DEATH(simulate(schedule, durations, network), "rank 0 sends 64 bytes to rank 1, which expects 48 bytes");
}

}  // namespace
}  // namespace longhaul
