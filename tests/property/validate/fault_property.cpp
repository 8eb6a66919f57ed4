// Faults planted in real schedules. What ends a tensor's life or covers attention must be reported by the dry run; a
// wait or a record that is taken away must be reported, unless other waits imply it: then every execution order that
// streams and events leave open must still compute the right numbers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

#include "sim/core/rng.h"
#include "sim/schedule/checks.h"
#include "sim/schedule/coverage.h"
#include "tests/property/validate/verify_case.h"
#include "validate/cpu/verify.h"

namespace longhaul {
namespace {

using OpPlace = std::pair<SegmentId, std::int16_t>;

// Ops that some rank runs, in order of segment and index.
std::set<OpPlace> executed(const Schedule& schedule) {
  std::set<OpPlace> places;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    Cursor cursor(static_cast<std::int32_t>(rank));
    OpInstance at;
    while (cursor.next(schedule, at)) places.insert({at.segment, at.index});
  }
  return places;
}

Op& op_at(Schedule& schedule, const OpPlace& place) {
  return schedule.segments[static_cast<std::size_t>(place.first)].ops[static_cast<std::size_t>(place.second)];
}

// Some small cases of each strategy, the same in every run.
std::vector<VerifyCase> cases_of(const Strategy& strategy) {
  Rng rng(7, "faults/" + strategy.name);
  const DrawInteger draw = [&](std::int64_t low, std::int64_t high) { return rng.integer(low, high); };
  std::vector<VerifyCase> cases;
  std::map<std::string, int> redrawn;
  while (cases.size() < 4) {
    VerifyCase drawn = draw_applicable(strategy, draw, redrawn);
    if (drawn.request.ranks >= 2 && drawn.request.ranks <= 6 && drawn.request.batch->tokens() <= 200) {
      cases.push_back(std::move(drawn));
    }
  }
  return cases;
}

bool runs_right_in_every_order(const Schedule& schedule) {
  try {
    for (const ExecutionOrder order :
         {ExecutionOrder::kComputeFirst, ExecutionOrder::kCommunicationFirst, ExecutionOrder::kRandom}) {
      VerifyOptions options;
      options.order = order;
      if (!verify(schedule, options).pass) return false;
    }
  } catch (const ScheduleError&) {
    return false;
  }
  return true;
}

class PlantedFaults : public testing::TestWithParam<std::string> {};

TEST_P(PlantedFaults, MissingAcquireOrRelease) {
  for (const VerifyCase& drawn : cases_of(*find_strategy(GetParam()))) {
    SCOPED_TRACE(describe(drawn.request));
    ASSERT_TRUE(check_schedule(*drawn.schedule).ok());
    for (const OpPlace& place : executed(*drawn.schedule)) {
      for (auto member : {&Op::acquire, &Op::release}) {
        Schedule faulty = *drawn.schedule;
        Op& op = op_at(faulty, place);
        if ((op.*member).empty() || (op.*member).front().chunks >= 0) continue;  // a chunk list may be empty
        (op.*member).erase((op.*member).begin());
        EXPECT_FALSE(check_schedule(faulty).ok()) << op.label;
      }
    }
  }
}

TEST_P(PlantedFaults, MissingWaitOrRecord) {
  int reported = 0, implied = 0;
  for (const VerifyCase& drawn : cases_of(*find_strategy(GetParam()))) {
    SCOPED_TRACE(describe(drawn.request));
    const auto judge = [&](const Schedule& faulty, const std::string& what) {
      if (!check_schedule(faulty).ok()) {
        ++reported;
        return;
      }
      ++implied;
      EXPECT_TRUE(runs_right_in_every_order(faulty)) << what;
    };
    for (const OpPlace& place : executed(*drawn.schedule)) {
      Schedule faulty = *drawn.schedule;
      Op& op = op_at(faulty, place);
      const Op intact = op;
      for (std::size_t i = 0; i < intact.waits.size(); ++i) {
        op.waits.erase(op.waits.begin() + static_cast<std::ptrdiff_t>(i));
        judge(faulty, fmt::format("wait {} of `{}`", intact.waits[i], op.label));
        op = intact;
      }
      if (intact.record == kNoEvent) continue;
      op.record = kNoEvent;
      judge(faulty, fmt::format("record of `{}`", op.label));
    }
  }
  std::printf("%s: %d missing waits and records reported, %d implied by others\n", GetParam().c_str(), reported,
              implied);
  EXPECT_GE(reported, 10);
}

TEST_P(PlantedFaults, MissingOrRepeatedPiece) {
  for (const VerifyCase& drawn : cases_of(*find_strategy(GetParam()))) {
    SCOPED_TRACE(describe(drawn.request));
    ASSERT_TRUE(check_coverage(*drawn.schedule).empty());
    std::set<std::pair<PieceSlot, ShapeId>> slots;  // of forward attention
    for (std::size_t rank = 0; rank < drawn.schedule->ranks.size(); ++rank) {
      Cursor cursor(static_cast<std::int32_t>(rank));
      OpInstance at;
      while (cursor.next(*drawn.schedule, at)) {
        if (at.op->kind != OpKind::kAttention || at.op->pass != Pass::kForward) continue;
        slots.insert({at.op->pieces, drawn.schedule->ranks[rank].shapes[static_cast<std::size_t>(at.chunk)]});
      }
    }
    int planted = 0;
    for (const auto& [slot, shape] : slots) {
      for (const bool repeat : {false, true}) {
        Schedule faulty = *drawn.schedule;
        PieceListPtr& list = faulty.shapes[static_cast<std::size_t>(shape)].pieces[static_cast<std::size_t>(slot)];
        std::vector<Piece> pieces = list->pieces;
        if (pieces.empty()) continue;
        if (repeat)
          pieces.push_back(pieces.back());
        else
          pieces.pop_back();
        list = make_piece_list(std::move(pieces));
        ++planted;
        EXPECT_FALSE(check_coverage(faulty).empty()) << "shape " << shape << ", slot " << slot;
        EXPECT_FALSE(check_coverage(faulty, {.brute_force_pairs = 0}).empty())
            << "shape " << shape << ", slot " << slot;
      }
    }
    EXPECT_GE(planted, 2);
  }
}

// verify() runs both checks: a schedule that computes the right numbers in the order at hand, but lacks a wait, fails.
TEST_P(PlantedFaults, VerifyFailsByViolationsAlone) {
  int right_by_luck = 0;
  for (const VerifyCase& drawn : cases_of(*find_strategy(GetParam()))) {
    for (const OpPlace& place : executed(*drawn.schedule)) {
      Schedule faulty = *drawn.schedule;
      op_at(faulty, place).waits.clear();
      if (check_schedule(faulty).ok()) continue;
      try {
        const VerifyReport report = verify(faulty);
        EXPECT_FALSE(report.pass);
        EXPECT_FALSE(report.violations.empty());
        right_by_luck += report.worst <= 1e-10 ? 1 : 0;
      } catch (const ScheduleError&) {  // the executor met it
      }
    }
  }
  EXPECT_GE(right_by_luck, 1);
}

// One rank skips one of its collectives: the others wait for it, or its calls no longer match theirs.
TEST_P(PlantedFaults, RankThatSkipsACollective) {
  int planted = 0;
  for (const VerifyCase& drawn : cases_of(*find_strategy(GetParam()))) {
    SCOPED_TRACE(describe(drawn.request));
    for (const OpPlace& place : executed(*drawn.schedule)) {
      Schedule faulty = *drawn.schedule;
      const Op op = op_at(faulty, place);
      const RankInfo& info = faulty.ranks[0];
      if (op.kind != OpKind::kCollective || info.groups[static_cast<std::size_t>(op.role)] < 0) continue;
      const GroupId group = info.groups[static_cast<std::size_t>(op.role)];
      if (faulty.groups[static_cast<std::size_t>(group)].members.size() < 2) continue;
      Program program = faulty.programs[static_cast<std::size_t>(info.program)];  // rank 0's own, with its own segment
      Segment segment = faulty.segments[static_cast<std::size_t>(place.first)];
      Op& skipped = segment.ops[static_cast<std::size_t>(place.second)];
      skipped.kind = OpKind::kElementwise;  // keeps waits, record, acquire and release
      skipped.function = Function::kZero;
      skipped.parts.clear();
      bool used = false;
      for (Block& block : program.blocks) {
        if (block.segment != place.first) continue;
        block.segment = static_cast<SegmentId>(faulty.segments.size());
        used = used || op.guard == Guard::kAlways || block.iterations > 1;
      }
      if (!used) continue;
      faulty.segments.push_back(std::move(segment));
      faulty.ranks[0].program = static_cast<ProgramId>(faulty.programs.size());
      faulty.programs.push_back(std::move(program));
      ++planted;
      EXPECT_FALSE(check_schedule(faulty).ok()) << op.label;
    }
  }
  EXPECT_GE(planted, 4);
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Strategy, PlantedFaults, testing::ValuesIn(strategy_names()), test_name);

}  // namespace
}  // namespace longhaul
