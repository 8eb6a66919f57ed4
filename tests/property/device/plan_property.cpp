// Launch orders, arenas and kernel calls over random schedules of every strategy.
//
// Order: every op once, a rank's ops in program order, a collective at once for all members that take part; so any two
// calls come in one order on all ranks. Arena: two tensors that streams and events do not order never overlap; the
// block is at least the peak and at most the sum of all tensors. Calls: every row lies inside its part of memory.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "tests/property/validate/verify_case.h"
#include "validate/device/device_plan.h"

namespace longhaul {
namespace {

std::int64_t draw_by_rapidcheck(std::int64_t low, std::int64_t high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(low, high + 1));
}

void check_order(const DevicePlan& plan) {
  std::vector<std::int32_t> next(static_cast<std::size_t>(plan.ranks()), 0);
  std::map<std::int32_t, std::int32_t> launches_of_call;
  for (const Launch& launch : plan.order()) {
    RC_ASSERT(!launch.places.empty());
    if (launch.call < 0) RC_ASSERT(launch.places.size() == 1U);
    if (launch.call >= 0) RC_ASSERT(++launches_of_call[launch.call] == 1);
    for (const LaunchPlace& at : launch.places) {
      RC_ASSERT(next[static_cast<std::size_t>(at.rank)]++ == at.position);
      const ProgramOp& op = plan.programs().op(at.rank, at.position);
      RC_ASSERT((op.call >= 0 && !op.empty ? op.call : -1) == launch.call);
    }
    if (launch.call < 0) continue;
    const GroupCall& call = plan.programs().calls[static_cast<std::size_t>(launch.call)];
    std::size_t taking = 0;
    for (std::size_t m = 0; m < call.positions.size(); ++m) {
      const std::int32_t rank = plan.schedule().groups[static_cast<std::size_t>(call.group)].members[m];
      taking += plan.programs().op(rank, call.positions[m]).empty ? 0U : 1U;
    }
    RC_ASSERT(launch.places.size() == taking);
  }
  for (std::int32_t rank = 0; rank < plan.ranks(); ++rank) {
    RC_ASSERT(static_cast<std::size_t>(next[static_cast<std::size_t>(rank)]) ==
              plan.programs().ranks[static_cast<std::size_t>(rank)].size());
  }
}

void check_arena(const DevicePlan& plan, std::int32_t rank) {
  const ArenaPlan& arena = plan.arena(rank);
  const HappensBefore before(plan.programs().ranks[static_cast<std::size_t>(rank)], plan.programs().streams);
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < arena.tensors.size(); ++i) {
    const ArenaTensor& a = arena.tensors[i];
    sum += (a.bytes + kArenaSlack + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
    RC_ASSERT(a.offset % kArenaAlignment == 0 && a.offset >= 0 && a.offset + a.bytes <= arena.bytes);
    for (std::size_t j = 0; j < i; ++j) {
      const ArenaTensor& b = arena.tensors[j];
      const bool apart = a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
      if (!apart) RC_ASSERT(!may_meet(a, b, before));
      // Whatever holds both at once in program order meets.
      const bool together = a.acquired <= b.released && b.acquired <= a.released;
      if (together) RC_ASSERT(may_meet(a, b, before));
    }
  }
  RC_ASSERT(arena.peak_bytes <= arena.bytes);
  RC_ASSERT(arena.bytes <= sum);
  RC_ASSERT(arena.resident_bytes <= arena.peak_bytes);
}

class Bounds {
 public:
  Bounds(const DevicePlan& plan, std::int32_t rank, std::int32_t position)
      : plan_(plan), rank_(rank), stream_(plan.programs().op(rank, position).at.op->stream) {}

  void rows(const Rows& of) const {
    const std::int64_t element = element_bytes(of.type);
    if (of.rows == 0 || of.columns == 0) return;
    std::int64_t last = of.rows - 1;
    if (!of.dense()) {
      const std::vector<std::int32_t>& pool = plan_.constants(rank_);
      last = 0;
      for (std::int64_t i = 0; i < of.rows; ++i) {
        const auto at = static_cast<std::size_t>(of.index / 4 + i);
        RC_ASSERT(at < pool.size());
        last = std::max<std::int64_t>(last, pool[at]);
      }
    }
    bytes(of.base, (last * of.stride + of.columns) * element);
  }
  void bytes(const Address& at, std::int64_t count) const {
    const RankNeed need = plan_.need(rank_);
    std::int64_t size = 0;
    switch (at.part) {
      case MemoryPart::kArena:
        size = need.arena_bytes;
        break;
      case MemoryPart::kScratch:
        size = need.scratch_bytes[static_cast<std::size_t>(stream_)];
        break;
      case MemoryPart::kConstant:
        size = need.constant_bytes;
        break;
      case MemoryPart::kLoss:
        size = need.loss_bytes;
        break;
    }
    RC_ASSERT(at.offset >= 0 && at.offset + count <= size);
  }

  void operator()(const CopyRowsCall& call) const {
    rows(call.from);
    rows(call.to);
    RC_ASSERT(call.from.rows == call.to.rows && call.from.columns == call.to.columns);
  }
  void operator()(const FillRowsCall& call) const { rows(call.to); }
  void operator()(const SumRowsCall& call) const {
    for (const Rows& from : call.from) rows(from);
    rows(call.to);
  }
  void operator()(const GemmCall& call) const {
    const GemmProblem& p = call.problem;
    RC_ASSERT(p.valid());
    bytes(call.a, 2 * ((p.a_rows() - 1) * p.a_stride + p.a_columns()));
    bytes(call.b, 2 * ((p.b_rows() - 1) * p.b_stride + p.b_columns()));
    bytes(call.c, 2 * ((p.m - 1) * p.c_stride + p.n));
  }
  void operator()(const AttentionForwardCall& call) const {
    attention(call, *call.pieces);
    bytes(call.o, 2 * call.q_rows * call.q_heads * call.head_dim);
    bytes(call.lse, 4 * call.q_rows * call.q_heads);
  }
  void operator()(const AttentionBackwardCall& call) const {
    attention(call, *call.pieces);
    bytes(call.dq, 2 * call.q_rows * call.q_heads * call.head_dim);
    bytes(call.dk, 2 * call.k_rows * call.kv_heads * call.head_dim);
    bytes(call.dv, 2 * call.k_rows * call.kv_heads * call.head_dim);
  }
  template <class Call>
  void attention(const Call& call, const std::vector<Piece>& pieces) const {
    bytes(call.q, 2 * call.q_rows * call.q_heads * call.head_dim);
    bytes(call.k, 2 * call.k_rows * call.kv_heads * call.head_dim);
    bytes(call.v, 2 * call.k_rows * call.kv_heads * call.head_dim);
    std::vector<bool> named(static_cast<std::size_t>(call.k_rows), false);
    for (const Piece& piece : pieces) {
      RC_ASSERT(piece.operand == 0 && piece.q_row + piece.q_count <= call.q_rows);
      RC_ASSERT(piece.k_row >= 0 && piece.k_row + piece.k_count <= call.k_rows);
      for (std::int64_t i = 0; i < piece.k_count; ++i) named[static_cast<std::size_t>(piece.k_row + i)] = true;
    }
    RC_ASSERT(std::all_of(named.begin(), named.end(), [](bool is) { return is; }));  // nothing unwritten is read
  }
  void operator()(const AdamwCall& call) const {
    for (const Address& at : {call.gradient, call.w, call.m, call.v}) {
      bytes(at, 4 * call.count);
      RC_ASSERT(at.offset % 16 == 0);
    }
  }
  template <class Other>
  void operator()(const Other&) const {}

 private:
  const DevicePlan& plan_;
  std::int32_t rank_;
  StreamId stream_;
};

void check_calls(const DevicePlan& plan, std::int32_t rank) {
  const std::vector<ProgramOp>& program = plan.programs().ranks[static_cast<std::size_t>(rank)];
  for (std::size_t i = 0; i < program.size(); ++i) {
    const auto position = static_cast<std::int32_t>(i);
    const Bounds bounds(plan, rank, position);
    // Nothing to do though it is not empty: rows of padding alone, or keys that no query sees, where results are added.
    const MappedKernel kernel = plan.op(rank, position).kernel;
    const bool may_do_nothing =
        kernel == MappedKernel::kEmbeddingBackward || kernel == MappedKernel::kAttentionBackward;
    if (!program[i].empty && program[i].call < 0 && !may_do_nothing) {
      RC_ASSERT(!plan.op(rank, position).calls.empty());
    }
    for (const DeviceCall& call : plan.op(rank, position).calls) std::visit(bounds, call);
  }
}

// Bytes of the arena that some rows are.
template <class Mark>
void for_each_byte(const DevicePlan& plan, std::int32_t rank, const Rows& rows, const Mark& mark) {
  const std::int64_t element = element_bytes(rows.type);
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    const std::int64_t row = rows.dense() ? i : plan.constants(rank)[static_cast<std::size_t>(rows.index / 4 + i)];
    const std::int64_t begin = rows.base.offset + row * rows.stride * element;
    for (std::int64_t b = begin; b < begin + rows.columns * element; ++b) mark(static_cast<std::size_t>(b));
  }
}

// No member receives into what it sends in the same exchange: transports may do both at once.
void check_exchange(const DevicePlan& plan, const LoweredCall& call) {
  std::map<std::int32_t, std::vector<bool>> sent;
  for (const Message& message : call.messages) {
    std::vector<bool>& bytes = sent[message.from];
    bytes.resize(static_cast<std::size_t>(plan.arena(message.from).bytes), false);
    for_each_byte(plan, message.from, message.send, [&](std::size_t at) { bytes[at] = true; });
  }
  for (const Message& message : call.messages) {
    const std::vector<bool>& bytes = sent[message.to];
    if (bytes.empty()) continue;
    for_each_byte(plan, message.to, message.receive, [&](std::size_t at) { RC_ASSERT(!bytes[at]); });
  }
}

std::vector<std::string> selected() {
  const char* name = std::getenv("LONGHAUL_STRATEGY");
  return name == nullptr ? strategy_names() : std::vector<std::string>{name};
}

class DevicePlanProperty : public testing::TestWithParam<std::string> {};

TEST_P(DevicePlanProperty, HoldsOnRandomSchedules) {
  const Strategy& strategy = *find_strategy(GetParam());
  std::map<std::string, int> redrawn;
  EXPECT_TRUE(rc::check("device plans: " + strategy.name, [&] {
    const VerifyCase drawn = draw_applicable(strategy, draw_by_rapidcheck, redrawn);
    RC_LOG() << describe(drawn.request);
    const DevicePlan plan(*drawn.schedule);
    check_order(plan);
    for (std::int32_t call = 0; call < plan.calls(); ++call) {
      if (plan.call(call).kind == CollectiveKind::kExchange) check_exchange(plan, plan.call(call));
    }
    for (std::int32_t rank = 0; rank < plan.ranks(); ++rank) {
      check_arena(plan, rank);
      check_calls(plan, rank);
    }
  }));
}

INSTANTIATE_TEST_SUITE_P(Strategies, DevicePlanProperty, testing::ValuesIn(selected()), [](const auto& suite) {
  std::string name = suite.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace longhaul
