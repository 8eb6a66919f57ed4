// Op families by themselves, on one rank or a group, against values made here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/schedule/small_schedule.h"
#include "validate/cpu/attention_kernel.h"
#include "validate/cpu/errors.h"
#include "validate/cpu/ops.h"

namespace longhaul {
namespace {

using ::testing::HasSubstr;

constexpr double kLowest = -std::numeric_limits<double>::infinity();

// The small schedule's ranks with tensors that are set by hand.
class Ops : public testing::Test {
 protected:
  // Rows by map slot: 0 half a document (4 rows), 1 the whole one (8 rows). Call before `fill`.
  TensorKindId kind(RowMapSlot rows, std::int64_t columns) { return small.tensor("t", rows, columns); }

  void fill(int rank, TensorKindId kind, const Matrix& values) {
    if (machine == nullptr) machine = std::make_unique<Machine>(small.schedule);
    TensorData tensor = machine->make_tensor(rank, id(kind));
    ASSERT_EQ(tensor.rows * tensor.columns, values.size());
    std::copy_n(values.data(), values.size(), tensor.values.begin());
    ASSERT_TRUE(machine->ranks[static_cast<std::size_t>(rank)].add(std::move(tensor)));
  }
  Matrix value(int rank, TensorKindId kind) {
    const TensorData* tensor = machine->ranks[static_cast<std::size_t>(rank)].find(id(kind));
    return Eigen::Map<const Matrix>(tensor->values.data(), tensor->rows, tensor->columns);
  }
  static TensorId id(TensorKindId kind) {
    TensorId found;
    found.kind = kind;
    found.layer = 0;
    found.chunk = 0;
    return found;
  }
  OpInstance at(const Op& op, int rank = 0) const {
    OpInstance instance;
    instance.op = &op;
    instance.rank = rank;
    instance.shape = &small.schedule.shapes[static_cast<std::size_t>(rank)];
    return instance;
  }
  // Rows x columns of first, first + 1, ...
  static Matrix counting(std::int64_t rows, std::int64_t columns, double first) {
    Matrix values(rows, columns);
    for (std::int64_t i = 0; i < values.size(); ++i) values.data()[i] = first + static_cast<double>(i);
    return values;
  }
  // Runs one collective of both ranks.
  void collective(CollectiveKind which, TensorKindId send, TensorKindId receive, Access access = Access::kWrite) {
    Op op;
    op.kind = OpKind::kCollective;
    op.collective = which;
    op.role = 0;
    op.parts = {{small.view(send, Access::kRead), small.view(receive, access), -1}};
    if (which == CollectiveKind::kAllReduce) op.parts[0].send = View{};
    run_collective(*machine, {at(op, 0), at(op, 1)});
  }

  SmallSchedule small;
  std::unique_ptr<Machine> machine;
};

// Softmax over the union of two key sets from the parts: o = sum of exp(s) v / sum of exp(s), lse = log sum.
TEST_F(Ops, MergePartialsIsTheSoftmaxOverBothKeySets) {
  const TensorKindId o_part = kind(0, 4), lse_part = kind(0, 2), o = kind(0, 4), lse = kind(0, 2);
  const double s[2][2] = {{0.3, -1.2}, {2.5, 0.7}};  // [part][key] scores; every row and head alike
  const double v[2][2] = {{1.0, 3.0}, {-2.0, 0.5}};
  double of_part[2], lse_of_part[2], top = 0, total = 0;
  for (int part = 0; part < 2; ++part) {
    const double a = std::exp(s[part][0]), b = std::exp(s[part][1]);
    of_part[part] = (a * v[part][0] + b * v[part][1]) / (a + b);
    lse_of_part[part] = std::log(a + b);
    top += a * v[part][0] + b * v[part][1];
    total += a + b;
  }
  fill(0, o, Matrix::Constant(4, 4, of_part[0]));
  fill(0, lse, Matrix::Constant(4, 2, lse_of_part[0]));
  fill(0, o_part, Matrix::Constant(4, 4, of_part[1]));
  fill(0, lse_part, Matrix::Constant(4, 2, lse_of_part[1]));
  Op op;
  op.kind = OpKind::kMergePartials;
  op.operands = {small.view(o_part, Access::kRead), small.view(lse_part, Access::kRead),
                 small.view(o, Access::kAccumulate), small.view(lse, Access::kAccumulate)};
  run_merge_partials(*machine, at(op));
  EXPECT_LT((value(0, o).array() - top / total).abs().maxCoeff(), 1e-15);
  EXPECT_LT((value(0, lse).array() - std::log(total)).abs().maxCoeff(), 1e-15);
}

// A part without keys (lse -inf) changes nothing, and is replaced by one with keys; two of them stay empty.
TEST_F(Ops, MergePartialsWithoutKeys) {
  const TensorKindId o_part = kind(0, 4), lse_part = kind(0, 2), o = kind(0, 4), lse = kind(0, 2);
  Matrix lse_values(4, 2), part_values(4, 2);
  lse_values << kLowest, kLowest, 1.0, 1.0, kLowest, kLowest, 800.0, 800.0;
  part_values << kLowest, kLowest, kLowest, kLowest, 2.0, 2.0, -800.0, -800.0;
  Matrix o_values = Matrix::Constant(4, 4, 7.0), o_part_values = Matrix::Constant(4, 4, 5.0);
  o_values.row(0).setZero();
  o_values.row(2).setZero();
  o_part_values.topRows(2).setZero();
  fill(0, o, o_values);
  fill(0, lse, lse_values);
  fill(0, o_part, o_part_values);
  fill(0, lse_part, part_values);
  Op op;
  op.kind = OpKind::kMergePartials;
  op.operands = {small.view(o_part, Access::kRead), small.view(lse_part, Access::kRead),
                 small.view(o, Access::kAccumulate), small.view(lse, Access::kAccumulate)};
  run_merge_partials(*machine, at(op));
  const Matrix out = value(0, o), log_sum = value(0, lse);
  EXPECT_TRUE((out.row(0).array() == 0.0).all());  // neither
  EXPECT_TRUE((log_sum.row(0).array() == kLowest).all());
  EXPECT_TRUE((out.row(1).array() == 7.0).all());  // what was there
  EXPECT_TRUE((log_sum.row(1).array() == 1.0).all());
  EXPECT_TRUE((out.row(2).array() == 5.0).all());  // the part
  EXPECT_TRUE((log_sum.row(2).array() == 2.0).all());
  EXPECT_TRUE((out.row(3).array() == 7.0).all());  // e^-1600 beside 1: no overflow, no NaN
  EXPECT_TRUE((log_sum.row(3).array() == 800.0).all());
}

// 4 rows of 4 columns into blocks of 2 columns, stacked: rows 0-3 hold columns 0-1, rows 4-7 columns 2-3.
TEST_F(Ops, SplitAndJoinColumnsAreInverse) {
  const TensorKindId wide = kind(0, 4), narrow = kind(1, 2), back = kind(0, 4);
  const Matrix values = counting(4, 4, 0.5);
  fill(0, wide, values);
  fill(0, narrow, Matrix::Zero(8, 2));
  fill(0, back, Matrix::Zero(4, 4));
  Op split;
  split.kind = OpKind::kMove;
  split.function = Function::kSplitColumns;
  split.operands = {small.view(wide, Access::kRead), small.view(narrow, Access::kWrite)};
  run_move(*machine, at(split));
  EXPECT_EQ(value(0, narrow).topRows(4), values.leftCols(2));
  EXPECT_EQ(value(0, narrow).bottomRows(4), values.rightCols(2));
  Op join = split;
  join.function = Function::kJoinColumns;
  join.operands = {small.view(narrow, Access::kRead), small.view(back, Access::kWrite)};
  run_move(*machine, at(join));
  EXPECT_EQ(value(0, back), values);
}

// One block of 2 columns repeated twice (GQA: two ranks share a KV head). The gradient of a repeat is the sum.
TEST_F(Ops, SplitRepeatsColumnsAndJoinSumsTheRepeats) {
  const TensorKindId wide = kind(0, 2), narrow = kind(1, 2), back = kind(0, 2);
  const Matrix values = counting(4, 2, 1.0);
  fill(0, wide, values);
  fill(0, narrow, Matrix::Zero(8, 2));
  fill(0, back, Matrix::Zero(4, 2));
  Op split;
  split.kind = OpKind::kMove;
  split.function = Function::kSplitColumns;
  split.operands = {small.view(wide, Access::kRead), small.view(narrow, Access::kWrite)};
  run_move(*machine, at(split));
  EXPECT_EQ(value(0, narrow).topRows(4), values);
  EXPECT_EQ(value(0, narrow).bottomRows(4), values);
  Op join = split;
  join.function = Function::kJoinColumns;
  join.operands = {small.view(narrow, Access::kRead), small.view(back, Access::kWrite)};
  run_move(*machine, at(join));
  EXPECT_EQ(value(0, back), 2.0 * values);
}

TEST_F(Ops, SplitRefusesShapesThatDoNotFit) {
  const TensorKindId wide = kind(0, 3), narrow = kind(1, 2);
  fill(0, wide, Matrix::Zero(4, 3));
  fill(0, narrow, Matrix::Zero(8, 2));
  Op split;
  split.kind = OpKind::kMove;
  split.function = Function::kSplitColumns;
  split.operands = {small.view(wide, Access::kRead), small.view(narrow, Access::kWrite)};
  try {
    run_move(*machine, at(split));
    FAIL() << "two blocks of 2 columns are not a multiple of 3";
  } catch (const ScheduleError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot split 4 x 3 into 8 x 2"));
  }
}

TEST_F(Ops, AllGatherStacksTheMembers) {
  const TensorKindId part = kind(0, 2), all = kind(1, 2);
  for (int rank = 0; rank < 2; ++rank) {
    fill(rank, part, counting(4, 2, 100.0 * rank));
    fill(rank, all, Matrix::Zero(8, 2));
  }
  collective(CollectiveKind::kAllGather, part, all);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(value(rank, all).topRows(4), counting(4, 2, 0.0));
    EXPECT_EQ(value(rank, all).bottomRows(4), counting(4, 2, 100.0));
  }
}

TEST_F(Ops, ReduceScatterGivesEachMemberItsShareOfTheSum) {
  for (const bool adds : {false, true}) {
    machine.reset();
    const TensorKindId all = kind(1, 2), part = kind(0, 2);
    for (int rank = 0; rank < 2; ++rank) {
      fill(rank, all, counting(8, 2, 100.0 * rank));
      fill(rank, part, Matrix::Constant(4, 2, 1000.0));
    }
    collective(CollectiveKind::kReduceScatter, all, part, adds ? Access::kAccumulate : Access::kWrite);
    for (int rank = 0; rank < 2; ++rank) {
      const Matrix sum = counting(8, 2, 0.0) + counting(8, 2, 100.0);
      const Matrix expected = sum.middleRows(4 * rank, 4).array() + (adds ? 1000.0 : 0.0);
      EXPECT_EQ(value(rank, part), expected);
    }
  }
}

TEST_F(Ops, AllReduceSumsInPlace) {
  const TensorKindId a = kind(0, 2);
  for (int rank = 0; rank < 2; ++rank) fill(rank, a, counting(4, 2, 10.0 * rank));
  collective(CollectiveKind::kAllReduce, a, a, Access::kAccumulate);
  const Matrix sum = counting(4, 2, 0.0) + counting(4, 2, 10.0);
  EXPECT_EQ(value(0, a), sum);
  EXPECT_EQ(value(1, a), sum);
}

TEST_F(Ops, BroadcastSendsTheFirstMembersRows) {
  const TensorKindId from = kind(0, 2), to = kind(0, 2);
  for (int rank = 0; rank < 2; ++rank) {
    fill(rank, from, counting(4, 2, 10.0 * rank));
    fill(rank, to, Matrix::Constant(4, 2, -1.0));
  }
  collective(CollectiveKind::kBroadcast, from, to);
  EXPECT_EQ(value(1, to), counting(4, 2, 0.0));
  EXPECT_TRUE((value(0, to).array() == -1.0).all());  // it only sends
}

// Each rank sends its first two rows to the other, which adds them to its last two.
TEST_F(Ops, ExchangeAddsWhatItReceives) {
  const TensorKindId from = kind(0, 2), to = kind(0, 2);
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    fill(rank, from, counting(4, 2, 10.0 * rank));
    fill(rank, to, Matrix::Constant(4, 2, 100.0));
    auto list = std::make_shared<ExchangeList>(
        ExchangeList{{1 - rank, make_row_list({{0, 2}}), 0, 2, make_row_list({{2, 2}}), 0, 2}});
    small.schedule.shapes[static_cast<std::size_t>(rank)].exchanges = {list};
  }
  Op op;
  op.kind = OpKind::kCollective;
  op.role = 0;
  op.parts = {{small.view(from, Access::kRead), small.view(to, Access::kAccumulate), 0}};
  run_collective(*machine, {at(op, 0), at(op, 1)});
  for (int rank = 0; rank < 2; ++rank) {
    const Matrix sent = counting(4, 2, 10.0 * (1 - rank)).topRows(2);
    EXPECT_TRUE((value(rank, to).topRows(2).array() == 100.0).all());
    EXPECT_EQ(value(rank, to).bottomRows(2), Matrix(sent.array() + 100.0));
  }
}

// A rank without query rows: the gradients of its keys are zeros, not what stood there before.
TEST_F(Ops, AttentionBackwardWithoutQueriesZeroesItsKeyGradients) {
  const TensorKindId q = kind(2, 4), lse = kind(2, 2), kv = kind(0, 2), d_kv = kind(0, 2);
  small.schedule.shapes[0].row_maps.push_back(make_row_map({}));
  small.schedule.shapes[0].pieces = {make_piece_list({})};
  fill(0, q, Matrix(0, 4));
  fill(0, lse, Matrix(0, 2));
  fill(0, kv, counting(4, 2, 1.0));
  fill(0, d_kv, Matrix::Constant(4, 2, std::numeric_limits<double>::quiet_NaN()));
  Op op;
  op.kind = OpKind::kAttention;
  op.pass = Pass::kBackward;
  op.q = op.o = op.o_gradient = small.view(q, Access::kRead);
  op.lse = small.view(lse, Access::kRead);
  op.q_gradient = small.view(q, Access::kWrite);
  const View keys = small.view(kv, Access::kRead), gradient = small.view(d_kv, Access::kWrite);
  op.key_values = {{keys, keys, gradient, gradient, -1}};
  op.pieces = 0;
  op.q_heads = 2;
  op.kv_heads = 1;
  op.head_dim = 2;
  ASSERT_FALSE(is_empty(small.schedule, at(op)));
  run_attention(*machine, at(op));
  EXPECT_EQ(value(0, d_kv), Matrix(Matrix::Zero(4, 2)));
}

// The kernel's exp: relative error below 4e-16 where exp is normal, at rounding borders and between.
TEST(ExpLanes, IsExpToTheLastBits) {
  double worst = 0;
  for (double first = -700.0; first <= 700.0; first += 0.173) {
    double x[kLanes], y[kLanes];
    for (std::int64_t i = 0; i < kLanes; ++i) x[i] = first + 0.0211 * static_cast<double>(i);
    x[7] = std::round(first / std::log(2.0)) * std::log(2.0) / 2;  // where the reduced argument changes sign
    exp_lanes(x, y);
    for (std::int64_t i = 0; i < kLanes; ++i) {
      if (x[i] > 700.0) continue;
      worst = std::max(worst, std::abs(y[i] / std::exp(x[i]) - 1.0));
    }
  }
  EXPECT_LT(worst, 4e-16);
}

TEST(ExpLanes, KnownValuesAndTheClamp) {
  const double x[kLanes] = {0.0, -0.0, 1.0, -1.0, -700.0, -1e6, kLowest, 1e-300};
  double y[kLanes];
  exp_lanes(x, y);
  EXPECT_EQ(y[0], 1.0);
  EXPECT_EQ(y[1], 1.0);
  EXPECT_DOUBLE_EQ(y[2], 2.718281828459045);
  EXPECT_DOUBLE_EQ(y[3], 0.36787944117144233);
  for (int i = 4; i < 7; ++i) EXPECT_NEAR(y[i] / std::exp(-700.0), 1.0, 4e-16);  // clamped: nothing beside 1
  EXPECT_EQ(y[7], 1.0);
}

}  // namespace
}  // namespace longhaul
