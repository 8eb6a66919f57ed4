// Each rule of the dry run, kept and broken.
#include "sim/schedule/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/core/error.h"
#include "tests/unit/schedule/small_schedule.h"

namespace longhaul {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr EventSlot kWritten = 0, kReduced = 1;

// On both ranks: write a, reduce it on the group's stream, copy it to b. Faults are planted in rank 0.
struct Reduction {
  SmallSchedule small;
  TensorKindId a, b;
  Reduction() : a(small.tensor("a", 0, 2)), b(small.tensor("b", 0, 2)) {
    for (int rank = 0; rank < 2; ++rank) {
      Op& write = small.write(rank, "write", a);
      write.acquire = {small.ref(a)};
      write.record = kWritten;
      Op& reduce = small.all_reduce(rank, "reduce", a);
      reduce.waits = {kWritten};
      reduce.record = kReduced;
      Op& copy = small.copy(rank, "copy", a, b);
      copy.waits = {kReduced};
      copy.acquire = {small.ref(b)};
      copy.release = {small.ref(a), small.ref(b)};
    }
  }
  Op& op(std::size_t index, std::size_t rank = 0) { return small.schedule.segments[rank].ops[index]; }
  std::vector<std::string> violations() const { return check_schedule(small.schedule).violations; }
};

TEST(Checks, AcceptsAnOrderedReduction) {
  const Reduction r;
  const CheckResult result = check_schedule(r.small.schedule);
  EXPECT_THAT(result.violations, IsEmpty());
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(result.ops, 6);
}

TEST(Checks, MissingWaitIsARaceWithTheWriteAndTheAcquire) {
  Reduction r;
  r.op(1).waits.clear();
  EXPECT_THAT(
      r.violations(),
      ElementsAre("rank 0 `reduce` (forward, layer 0, chunk 0): uses a[layer 0, chunk 0, instance 0] without order "
                  "after its acquire by `write` (forward, layer 0, chunk 0)",
                  "rank 0 `reduce` (forward, layer 0, chunk 0): writes a[layer 0, chunk 0, instance 0] without "
                  "order after its write by `write` (forward, layer 0, chunk 0)"));
}

TEST(Checks, ReadWithoutOrderAfterTheWriteAndReleaseWithoutOrderAfterTheUse) {
  Reduction r;
  r.op(2).waits.clear();
  EXPECT_THAT(
      r.violations(),
      ElementsAre(HasSubstr("`copy` (forward, layer 0, chunk 0): reads a[layer 0, chunk 0, instance 0] without "
                            "order after its write by `reduce`"),
                  HasSubstr("`copy` (forward, layer 0, chunk 0): releases a[layer 0, chunk 0, instance 0] without "
                            "order after its use by `reduce`")));
}

TEST(Checks, WaitForAnEventRecordedTooEarlyIsNoOrder) {
  Reduction r;
  r.op(2).waits = {kWritten};  // recorded before the reduction
  EXPECT_THAT(r.violations(), Contains(HasSubstr("without order after its write by `reduce`")));
}

TEST(Checks, AWaitNamesTheLatestRecordBeforeIt) {
  Reduction r;
  r.op(1).record = kWritten;  // the slot again: the copy's wait for it now means the reduction
  r.op(2).waits = {kWritten};
  EXPECT_THAT(r.violations(), IsEmpty());
}

TEST(Checks, WriteAfterReadAcrossStreams) {
  SmallSchedule small;
  const TensorKindId a = small.tensor("a", 0, 2), b = small.tensor("b", 0, 2);
  Op& write = small.write(0, "write", a);
  write.acquire = {small.ref(a)};
  write.record = kWritten;
  Op& read = small.copy(0, "read", a, b);
  read.stream = kCopyOutStream;
  read.waits = {kWritten};
  read.acquire = read.release = {small.ref(b)};
  Op& again = small.write(0, "again", a);
  EXPECT_THAT(
      check_schedule(small.schedule).violations,
      ElementsAre(HasSubstr("`again` (forward, layer 0, chunk 0): writes a[layer 0, chunk 0, instance 0] without "
                            "order after its read by `read`"),
                  "rank 0: a[layer 0, chunk 0, instance 0] is never released"));
  small.schedule.segments[0].ops[1].record = kReduced;
  small.schedule.segments[0].ops[2].waits = {kReduced};
  small.schedule.segments[0].ops[2].release = {small.ref(a)};
  EXPECT_EQ(again.label, "again");
  EXPECT_THAT(check_schedule(small.schedule).violations, IsEmpty());
}

// Two streams may work on different rows of one tensor without order; on the same row they may not.
TEST(Checks, OrderIsNeededOnlyWhereRowsMeet) {
  for (const bool apart : {true, false}) {
    SmallSchedule small;
    const TensorKindId a = small.tensor("a", 0, 2), b = small.tensor("b", 0, 2);
    Op& begin = small.write(0, "begin", b);
    begin.acquire = {small.ref(a), small.ref(b)};
    begin.record = kWritten;
    Op& first = small.write(0, "first", a, 0);
    first.stream = kCopyInStream;
    first.waits = {kWritten};
    first.record = kReduced;
    small.write(0, "last", a, apart ? RowListSlot{1} : kAllRows);
    Op& end = small.copy(0, "end", a, b);
    end.waits = {kReduced};
    end.release = {small.ref(a), small.ref(b)};
    if (apart) {
      EXPECT_THAT(check_schedule(small.schedule).violations, IsEmpty());
    } else {
      EXPECT_THAT(
          check_schedule(small.schedule).violations,
          ElementsAre(HasSubstr("`last` (forward, layer 0, chunk 0): writes a[layer 0, chunk 0, instance 0] without "
                                "order after its write by `first`")));
    }
  }
}

TEST(Checks, ReadOfRowsThatNothingWrote) {
  SmallSchedule small;
  const TensorKindId a = small.tensor("a", 0, 2), b = small.tensor("b", 0, 2);
  small.write(0, "write", a, 0).acquire = {small.ref(a), small.ref(b)};
  small.copy(0, "written", a, b, 0);
  small.copy(0, "beyond", a, b).release = {small.ref(a), small.ref(b)};
  EXPECT_THAT(
      check_schedule(small.schedule).violations,
      ElementsAre("rank 0 `beyond` (forward, layer 0, chunk 0): reads a[layer 0, chunk 0, instance 0], which is not "
                  "all written"));
  // The two halves together are the whole.
  small.schedule.segments[0].ops[1] = small.schedule.segments[0].ops[0];
  small.schedule.segments[0].ops[1].acquire.clear();
  small.schedule.segments[0].ops[1].operands[0].rows = 1;
  EXPECT_THAT(check_schedule(small.schedule).violations, IsEmpty());
}

TEST(Checks, AccumulationNeedsAWrite) {
  SmallSchedule small;
  const TensorKindId a = small.tensor("a", 0, 2);
  Op& op = small.write(1, "add", a);
  op.acquire = op.release = {small.ref(a)};
  op.operands[0].access = Access::kAccumulate;
  EXPECT_THAT(check_schedule(small.schedule).violations, ElementsAre(HasSubstr("rank 1 `add`")));
}

TEST(Checks, AcquireReleaseAndUseOfWhatIsHeld) {
  Reduction twice;
  twice.op(2).acquire.push_back(twice.small.ref(twice.a));
  EXPECT_THAT(
      twice.violations(),
      ElementsAre(HasSubstr("`copy` (forward, layer 0, chunk 0): acquires a[layer 0, chunk 0, instance 0], which is "
                            "held already")));
  Reduction released;
  released.op(2).release.push_back(released.small.ref(released.a));
  EXPECT_THAT(released.violations(),
              ElementsAre(HasSubstr("releases a[layer 0, chunk 0, instance 0], which is not held")));

  Reduction early;
  early.op(1).release = {early.small.ref(early.a)};
  EXPECT_THAT(early.violations(),
              ElementsAre(HasSubstr("uses a[layer 0, chunk 0, instance 0], which is not held"),
                          HasSubstr("releases a[layer 0, chunk 0, instance 0], which is not held")));
  Reduction kept;
  kept.op(2).release.pop_back();
  EXPECT_THAT(kept.violations(), ElementsAre("rank 0: b[layer 0, chunk 0, instance 0] is never released"));
}

TEST(Checks, AcquireNeedsOrderAfterTheReleaseOfTheSameTensor) {
  SmallSchedule small;
  const TensorKindId a = small.tensor("a", 0, 2);
  Op& first = small.write(0, "first", a);
  first.acquire = first.release = {small.ref(a)};
  Op& second = small.write(0, "second", a);
  second.acquire = second.release = {small.ref(a)};
  EXPECT_THAT(check_schedule(small.schedule).violations, IsEmpty());
  second.stream = kCopyInStream;
  EXPECT_THAT(
      check_schedule(small.schedule).violations,
      ElementsAre(HasSubstr("`second` (forward, layer 0, chunk 0): acquires a[layer 0, chunk 0, instance 0] without "
                            "order after its release by `first`")));
}

TEST(Checks, ResidentTensorsAreWrittenAndStay) {
  Reduction r;
  const TensorKindId weights = r.small.tensor("weights", 0, 2);
  r.small.schedule.programs[0].resident = {{weights, 0, true, false, 0, -1}};
  r.small.schedule.tensors.back() = {"weights", kFlat, 8, 1, ElementType::kBf16, MemoryCategory::kParameters};
  EXPECT_THAT(r.violations(), IsEmpty());
  r.op(2).release.push_back({weights, 0, true, false, 0, -1});
  EXPECT_THAT(r.violations(), ElementsAre("rank 0: resident weights[layer 0, instance 0] was released"));
}

TEST(Checks, ViewsStayInsideTheirTensors) {
  Reduction r;
  r.op(2).operands[0].column_begin = 1;
  EXPECT_THAT(r.violations(), ElementsAre(HasSubstr("`copy` (forward, layer 0, chunk 0): a view leaves a[")));
}

TEST(Checks, MembersMustAgree) {
  Reduction r;
  r.op(1, 1).parts[0].receive.columns = 1;
  EXPECT_THAT(r.violations(), ElementsAre(HasSubstr("rank 1 `reduce` (forward, layer 0, chunk 0): a[layer 0, chunk 0, "
                                                    "instance 0] of 4 x 1, expected 4 x 2")));
}

TEST(Checks, BytesSentAreBytesReceived) {
  Reduction r;
  const RowListPtr all = make_row_list({{0, 4}}), three = make_row_list({{0, 3}});
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    Op& op = r.op(1, static_cast<std::size_t>(rank));
    op.collective = CollectiveKind::kExchange;
    op.acquire = {r.small.ref(r.b)};
    op.parts = {{r.small.view(r.a, Access::kRead), r.small.view(r.b, Access::kWrite), 0}};
    r.op(2, static_cast<std::size_t>(rank)).acquire.clear();
    auto list = std::make_shared<ExchangeList>(ExchangeList{{1 - rank, all, 0, 2, rank == 0 ? all : three, 0, 2}});
    r.small.schedule.shapes[static_cast<std::size_t>(rank)].exchanges = {list};
  }
  EXPECT_THAT(r.violations(),
              ElementsAre(HasSubstr("rank 0 `reduce` (forward, layer 0, chunk 0): sends 8 elements of a[layer "
                                    "0, chunk 0, instance 0] to member 1, which receives 6 into b[")));
}

TEST(Checks, GroupsAreCalledInOneOrderOnAllRanks) {
  SmallSchedule small;
  const TensorKindId a = small.tensor("a", 0, 2), b = small.tensor("b", 0, 2);
  for (int rank = 0; rank < 2; ++rank) {
    small.write(rank, "a", a).acquire = {small.ref(a)};
    Op& write = small.write(rank, "b", b);
    write.acquire = {small.ref(b)};
    write.record = kWritten;
    const bool turned = rank == 1;
    for (const bool first : {true, false}) {
      const bool pair = first != turned;
      Op& reduce = small.all_reduce(rank, pair ? "pair" : "second", pair ? a : b, pair ? 0 : 1);
      reduce.waits = {kWritten};
      reduce.release = {small.ref(pair ? a : b)};
    }
  }
  EXPECT_THAT(
      check_schedule(small.schedule).violations,
      ElementsAre("rank 0 `pair` (forward, layer 0, chunk 0): call 0 of group 0 (role pair) never meets rank 1 "
                  "(waits at `second`, layer 0, chunk 0)",
                  "rank 1 `second` (forward, layer 0, chunk 0): call 0 of group 1 (role second) never meets rank 0 "
                  "(waits at `pair`, layer 0, chunk 0)"));
  std::swap(small.schedule.segments[1].ops[2], small.schedule.segments[1].ops[3]);
  EXPECT_THAT(check_schedule(small.schedule).violations, IsEmpty());
}

TEST(Checks, EveryMemberMakesEveryCall) {
  Reduction r;
  r.small.schedule.segments[1].ops.erase(r.small.schedule.segments[1].ops.begin() + 1);
  EXPECT_THAT(r.violations(),
              Contains("rank 0 `reduce` (forward, layer 0, chunk 0): call 0 of group 0 (role pair) never "
                       "meets rank 1 (has ended)"));
}

TEST(Checks, CountsWhatItDoesNotListAndStopsAtTheLimit) {
  Reduction r;
  r.op(1).waits.clear();
  CheckOptions options;
  options.max_violations = 1;
  const CheckResult result = check_schedule(r.small.schedule, options);
  EXPECT_EQ(result.violations.size(), 1U);
  EXPECT_EQ(result.violation_count, 2);
  EXPECT_FALSE(result.ok());
  options.max_ops = 5;
  EXPECT_THROW(check_schedule(r.small.schedule, options), LimitError);
}

// A backward without query rows still has to zero the gradients that it writes; one that adds has nothing to do.
TEST(IsEmpty, AttentionBackwardThatZeroesItsKeyGradients) {
  SmallSchedule small;
  const TensorKindId q = small.tensor("q", 2, 4), kv = small.tensor("kv", 0, 8);
  small.schedule.shapes[0].row_maps.push_back(make_row_map({}));
  small.schedule.shapes[0].pieces = {make_piece_list({})};
  Op op;
  op.kind = OpKind::kAttention;
  op.pass = Pass::kBackward;
  op.pieces = 0;
  op.q = small.view(q, Access::kRead);
  const View keys = small.view(kv, Access::kRead);
  View gradient = small.view(kv, Access::kWrite);
  op.key_values = {{keys, keys, gradient, gradient, -1}};
  OpInstance at;
  at.op = &op;
  at.shape = &small.schedule.shapes[0];
  EXPECT_FALSE(is_empty(small.schedule, at));
  op.key_values[0].key_gradient.access = op.key_values[0].value_gradient.access = Access::kAccumulate;
  EXPECT_TRUE(is_empty(small.schedule, at));
  op.key_values[0].value_gradient.access = Access::kWrite;
  EXPECT_FALSE(is_empty(small.schedule, at));
  op.pass = Pass::kForward;
  EXPECT_TRUE(is_empty(small.schedule, at));
}

}  // namespace
}  // namespace longhaul
