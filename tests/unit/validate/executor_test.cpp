// Hand-made schedules: what the executor computes, and what it refuses.
#include "validate/cpu/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "validate/cpu/reference_attention.h"

namespace longhaul {
namespace {

using ::testing::HasSubstr;

// Two ranks, one group "pair" (role 0, stream 3), one chunk; ops go into one segment a rank.
class Pair {
 public:
  Pair() {
    auto batch = std::make_shared<Batch>();
    batch->documents = {8};
    batch->sequences = {{{0}, 8}};
    batch->context_tokens = 8;
    schedule.batch = batch;
    schedule.model = {"tiny", 4, 8, 2, 1, 2, 1, 97, false, false, false};
    schedule.roles = {"pair"};
    schedule.groups = {{{0, 1}}};
    for (std::int32_t rank = 0; rank < 2; ++rank) {
      ShapeSet shape;
      // Slot 0: this rank's half of the document; slot 1: the whole document.
      shape.row_maps = {make_row_map({{0, TokenView::kClean, rank * 4, 4}}),
                        make_row_map({{0, TokenView::kClean, 0, 8}})};
      schedule.shapes.push_back(shape);
      schedule.segments.push_back({"rank" + std::to_string(rank), {}});
      Program program;
      Block block;
      block.segment = static_cast<SegmentId>(rank);
      program.blocks.push_back(block);
      schedule.programs.push_back(program);
      RankInfo info;
      info.program = rank;
      info.groups = {0};
      info.shapes = {rank};
      schedule.ranks.push_back(info);
    }
  }

  TensorKindId tensor(const char* name, RowMapSlot rows, std::int64_t columns) {
    schedule.tensors.push_back({name, rows, 0, columns, ElementType::kBf16, MemoryCategory::kActivations});
    return static_cast<TensorKindId>(schedule.tensors.size() - 1);
  }
  TensorRef ref(TensorKindId kind) const { return {kind, 0, true, true, 0, -1}; }
  View view(TensorKindId kind, Access access, std::int64_t column = 0, std::int64_t columns = -1) const {
    const std::int64_t all = schedule.tensors[static_cast<std::size_t>(kind)].columns;
    return {ref(kind), access, kAllRows, column, columns < 0 ? all : columns, 0, 0};
  }
  Op& add(int rank, Op op) {
    std::vector<Op>& ops = schedule.segments[static_cast<std::size_t>(rank)].ops;
    ops.push_back(std::move(op));
    return ops.back();
  }
  Op& zero(int rank, TensorKindId kind) {
    Op op;
    op.label = "zero";
    op.function = Function::kZero;
    op.operands = {view(kind, Access::kWrite)};
    op.acquire = {ref(kind)};
    return add(rank, op);
  }
  Op& cast(int rank, TensorKindId from, TensorKindId to) {
    Op op;
    op.label = "cast";
    op.function = Function::kCast;
    op.operands = {view(from, Access::kRead), view(to, Access::kWrite)};
    op.acquire = {ref(to)};
    op.release = {ref(from), ref(to)};
    return add(rank, op);
  }
  Op& all_reduce(int rank, TensorKindId kind) {
    Op op;
    op.label = "reduce";
    op.kind = OpKind::kCollective;
    op.collective = CollectiveKind::kAllReduce;
    op.role = 0;
    op.stream = kFirstCommunicationStream;
    op.parts = {{View{}, view(kind, Access::kAccumulate), -1}};
    return add(rank, op);
  }

  Schedule schedule;
};

std::string error_of(const Schedule& schedule, ExecutionOrder order = ExecutionOrder::kProgram) {
  try {
    ExecutionOptions options;
    options.order = order;
    execute(schedule, options);
  } catch (const ScheduleError& error) {
    return error.what();
  }
  return "";
}

TEST(Executor, RefusesAReadOfUnwrittenElements) {
  Pair pair;
  const TensorKindId a = pair.tensor("a", 0, 2);
  const TensorKindId b = pair.tensor("b", 0, 2);
  pair.zero(0, a).operands[0].columns = 1;  // column 1 stays unwritten
  pair.cast(0, a, b);
  EXPECT_THAT(error_of(pair.schedule), HasSubstr("rank 0 `cast` (forward, layer 0, chunk 0): reads a[layer 0, chunk 0, "
                                                 "instance 0], which is unwritten at row 0, column 1"));
}

TEST(Executor, RefusesDoubleAcquireDoubleReleaseAndUseOfWhatIsNotHeld) {
  Pair twice;
  const TensorKindId a = twice.tensor("a", 0, 2);
  twice.zero(1, a);
  twice.zero(1, a);
  EXPECT_THAT(error_of(twice.schedule), HasSubstr("acquires a[layer 0, chunk 0, instance 0], which is held already"));

  Pair released;
  const TensorKindId b = released.tensor("b", 0, 2);
  released.zero(0, b).release = {released.ref(b), released.ref(b)};
  EXPECT_THAT(error_of(released.schedule), HasSubstr("releases b[layer 0, chunk 0, instance 0], which is not held"));

  Pair absent;
  const TensorKindId c = absent.tensor("c", 0, 2);
  absent.zero(0, c).acquire.clear();
  EXPECT_THAT(error_of(absent.schedule), HasSubstr("uses c[layer 0, chunk 0, instance 0], which is not held"));
}

TEST(Executor, RefusesLeftoverTensors) {
  Pair pair;
  const TensorKindId a = pair.tensor("a", 0, 2);
  pair.zero(1, a);
  EXPECT_EQ(error_of(pair.schedule), "rank 1: a[layer 0, chunk 0, instance 0] is never released");
}

TEST(Executor, DeadlockNamesTheMissingMember) {
  Pair pair;
  const TensorKindId a = pair.tensor("a", 0, 2);
  pair.zero(0, a).record = 0;
  Op& reduce = pair.all_reduce(0, a);
  reduce.waits = {0};
  reduce.record = 1;
  Op& after = pair.zero(0, pair.tensor("b", 0, 1));
  after.waits = {1};
  try {
    execute(pair.schedule, {});
    FAIL() << "rank 1 never calls the reduction";
  } catch (const DeadlockError& error) {
    ASSERT_EQ(error.waiting().size(), 2U);
    EXPECT_EQ(
        error.waiting()[0],
        "rank 0 `reduce` (forward, layer 0, chunk 0) on stream 3 waits for call 0 of group 0 (role pair): missing "
        "rank 1 (has no such call)");
    EXPECT_EQ(error.waiting()[1],
              "rank 0 `zero` (forward, layer 0, chunk 0) on stream 0 waits for `reduce` (layer 0, "
              "chunk 0)");
  }
}

TEST(Executor, CollectiveMembersMustAgreeInSize) {
  Pair pair;
  const TensorKindId a = pair.tensor("a", 0, 2);
  for (int rank = 0; rank < 2; ++rank) {
    pair.zero(rank, a).record = 0;
    Op& reduce = pair.all_reduce(rank, a);
    reduce.waits = {0};
    reduce.release = {pair.ref(a)};
    if (rank == 1) reduce.parts[0].receive.columns = 1;
  }
  EXPECT_THAT(error_of(pair.schedule), HasSubstr("rank 1 `reduce` (forward, layer 0, chunk 0): a[layer 0, chunk 0, "
                                                 "instance 0] of 4 x 1, expected 4 x 2"));
}

// Without the wait, the reduction may run before the zero: an order that lets communication run ahead shows it.
TEST(Executor, AdversarialOrderExposesAMissingWait) {
  for (const bool with_wait : {true, false}) {
    Pair pair;
    const TensorKindId a = pair.tensor("a", 0, 2);
    const TensorKindId slow = pair.tensor("slow", 0, 2);
    for (int rank = 0; rank < 2; ++rank) {
      Op& acquire = pair.zero(rank, slow);
      acquire.acquire = {pair.ref(slow), pair.ref(a)};
      acquire.release = {pair.ref(slow)};
      acquire.record = 0;
      Op& write = pair.zero(rank, a);
      write.acquire.clear();
      write.record = 1;
      Op& reduce = pair.all_reduce(rank, a);
      reduce.waits = {static_cast<EventSlot>(with_wait ? 1 : 0)};
      reduce.release = {pair.ref(a)};
    }
    EXPECT_EQ(error_of(pair.schedule, ExecutionOrder::kProgram), "");
    const std::string error = error_of(pair.schedule, ExecutionOrder::kCommunicationFirst);
    if (with_wait) {
      EXPECT_EQ(error, "");
    } else {
      EXPECT_THAT(error, HasSubstr("accumulates into a[layer 0, chunk 0, instance 0], which is unwritten"));
    }
  }
}

// Each rank has the queries of half a document and gets the other half's keys in an exchange; the merged result must be
// the dense softmax over the whole document, and its gradients the dense ones.
class TwoRankAttention : public ::testing::TestWithParam<ExecutionOrder> {};

TEST_P(TwoRankAttention, EqualsDense) {
  Pair pair;
  const TensorKindId table = 0;
  pair.schedule.tensors.push_back(
      {"embedding_params", kFlat, 97 * 4, 1, ElementType::kBf16, MemoryCategory::kParameters});
  const TensorKindId q = pair.tensor("q", 0, 4);    // 2 heads of 2
  const TensorKindId kv = pair.tensor("kv", 0, 4);  // this rank's K and V (one head of 2 each)
  const TensorKindId kv_all = pair.tensor("kv_all", 1, 4);
  const TensorKindId o = pair.tensor("o", 0, 4);
  const TensorKindId lse = pair.tensor("lse", 0, 2);
  const TensorKindId d_q = pair.tensor("d_q", 0, 4);
  const TensorKindId d_kv = pair.tensor("d_kv", 1, 4);
  for (int rank = 0; rank < 2; ++rank) {
    ShapeSet& shape = pair.schedule.shapes[static_cast<std::size_t>(rank)];
    std::vector<Piece> pieces(1);
    pieces[0].q_count = pieces[0].k_count = 4;
    pieces[0].q_token = pieces[0].k_token = pieces[0].k_row = rank * 4;
    pieces[0].rule = MaskRule::kCausal;
    if (rank == 1) {
      pieces.push_back(pieces[0]);
      pieces[1].k_token = pieces[1].k_row = 0;
      pieces[1].rule = MaskRule::kFull;
    }
    shape.pieces = {make_piece_list(pieces)};
    auto list = std::make_shared<ExchangeList>();
    const RowListPtr own = make_row_list({{0, 4}});
    for (std::int32_t peer = 0; peer < 2; ++peer)
      list->push_back({peer, own, 0, 4, make_row_list({{peer * 4, 4}}), 0, 4});
    shape.exchanges = {list};
    pair.schedule.programs[static_cast<std::size_t>(rank)].resident = {{table, 0, false, false, 0, -1}};

    for (const TensorKindId target : {q, kv}) {
      Op embed;
      embed.label = "embed";
      embed.function = Function::kEmbedding;
      embed.operands = {{{table, 0, false, false, 0, -1}, Access::kRead, kAllRows, 0, 4, 0, 97},
                        pair.view(target, Access::kWrite)};
      embed.acquire = {pair.ref(target)};
      embed.record = 0;
      pair.add(rank, embed);
    }
    Op exchange;
    exchange.label = "exchange";
    exchange.kind = OpKind::kCollective;
    exchange.stream = kFirstCommunicationStream;
    exchange.role = 0;
    exchange.parts = {{pair.view(kv, Access::kRead), pair.view(kv_all, Access::kWrite), 0}};
    exchange.waits = {0};
    exchange.record = 1;
    exchange.acquire = {pair.ref(kv_all)};
    exchange.release = {pair.ref(kv)};
    pair.add(rank, exchange);
    Op attention;
    attention.label = "attention";
    attention.kind = OpKind::kAttention;
    attention.waits = {1};
    attention.q = pair.view(q, Access::kRead);
    attention.o = pair.view(o, Access::kWrite);
    attention.lse = pair.view(lse, Access::kWrite);
    attention.key_values = {
        {pair.view(kv_all, Access::kRead, 0, 2), pair.view(kv_all, Access::kRead, 2, 2), {}, {}, -1}};
    attention.pieces = 0;
    attention.q_heads = 2;
    attention.kv_heads = 1;
    attention.head_dim = 2;
    attention.acquire = {pair.ref(o), pair.ref(lse)};
    pair.add(rank, attention);
    Op backward = attention;
    backward.label = "attention_backward";
    backward.pass = Pass::kBackward;
    backward.o.access = backward.lse.access = Access::kRead;
    backward.o_gradient = pair.view(q, Access::kRead);  // any rows will do as a gradient
    backward.q_gradient = pair.view(d_q, Access::kWrite);
    backward.key_values[0].key_gradient = pair.view(d_kv, Access::kWrite, 0, 2);
    backward.key_values[0].value_gradient = pair.view(d_kv, Access::kWrite, 2, 2);
    backward.acquire = {pair.ref(d_q), pair.ref(d_kv)};
    backward.release = {pair.ref(q), pair.ref(kv_all), pair.ref(o), pair.ref(lse), pair.ref(d_q)};
    backward.record = 2;
    pair.add(rank, backward);
    Op& reduce = pair.all_reduce(rank, d_kv);
    reduce.waits = {2};
    reduce.release = {pair.ref(d_kv)};
  }

  std::map<std::string, Matrix> found[2];
  ExecutionOptions options;
  options.order = GetParam();
  options.on_release = [&](int rank, const TensorData& tensor, const OpInstance*) {
    const std::string& name = pair.schedule.tensors[static_cast<std::size_t>(tensor.id.kind)].name;
    if (tensor.row_map) found[rank][name] = Eigen::Map<const Matrix>(tensor.values.data(), tensor.rows, tensor.columns);
  };
  const ExecutionResult result = execute(pair.schedule, options);
  EXPECT_EQ(result.collectives, 2);

  // Dense: one softmax over the keys 0..i of the whole document.
  Matrix query(8, 4);
  query << found[0]["q"], found[1]["q"];
  Matrix out(8, 4), dq(8, 4);
  out << found[0]["o"], found[1]["o"];
  dq << found[0]["d_q"], found[1]["d_q"];
  const Matrix keys = found[1]["kv_all"];
  ASSERT_EQ(keys, query);  // both are the embedding of the same tokens
  Matrix expected_dkv = Matrix::Zero(8, 4);
  for (int h = 0; h < 2; ++h) {
    for (int i = 0; i < 8; ++i) {
      Eigen::VectorXd p(i + 1), d_p(i + 1);
      for (int j = 0; j <= i; ++j) {
        p[j] = std::exp(query.block(i, 2 * h, 1, 2).row(0).dot(keys.block(j, 0, 1, 2).row(0)) / std::sqrt(2.0));
        d_p[j] = query.block(i, 2 * h, 1, 2).row(0).dot(keys.block(j, 2, 1, 2).row(0));
      }
      p /= p.sum();
      const Eigen::VectorXd d_s = p.cwiseProduct((d_p.array() - p.dot(d_p)).matrix()) / std::sqrt(2.0);
      Eigen::RowVector2d o_row = Eigen::RowVector2d::Zero(), dq_row = Eigen::RowVector2d::Zero();
      for (int j = 0; j <= i; ++j) {
        o_row += p[j] * keys.block(j, 2, 1, 2);
        dq_row += d_s[j] * keys.block(j, 0, 1, 2);
        expected_dkv.block(j, 0, 1, 2) += d_s[j] * query.block(i, 2 * h, 1, 2);
        expected_dkv.block(j, 2, 1, 2) += p[j] * query.block(i, 2 * h, 1, 2);
      }
      EXPECT_LT((out.block(i, 2 * h, 1, 2) - o_row).norm(), 1e-14);
      EXPECT_LT((dq.block(i, 2 * h, 1, 2) - dq_row).norm(), 1e-14);
    }
  }
  EXPECT_LT((found[0]["d_kv"] - expected_dkv).norm(), 1e-13);
  EXPECT_LT((found[1]["d_kv"] - expected_dkv).norm(), 1e-13);
}

INSTANTIATE_TEST_SUITE_P(Orders, TwoRankAttention,
                         ::testing::Values(ExecutionOrder::kProgram, ExecutionOrder::kComputeFirst,
                                           ExecutionOrder::kCommunicationFirst, ExecutionOrder::kRandom));

}  // namespace
}  // namespace longhaul
