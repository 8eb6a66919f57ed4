// Random schedules against an independent longest-path solution, and laws that any run obeys.
//
// A random schedule is a global list of actions: a kernel on some stream of some rank with random waits and record, or
// an all-reduce of a random group. Every rank's program is its actions in that order, so all ranks issue the
// collectives of any two groups in one common order. Transfers do not disturb each other here, so without slow-down
// every start is a maximum of ends: the reference walks the actions once and knows nothing of events or queues.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>

#include "sim/executor/simulate.h"
#include "tests/unit/executor/hand_made.h"

namespace longhaul {
namespace {

using namespace hand_made;

constexpr int kRoles = 2;
constexpr int kSlots = 4;

struct Action {
  int rank = 0;           // kernels
  int group = -1;         // >= 0: a collective
  std::int64_t size = 0;  // ps of a kernel, or elements (2 ps each) of a collective
  int stream = 0;
  std::vector<EventSlot> waits;  // of every member
  EventSlot record = kNoEvent;
};

struct Case {
  int ranks = 0;
  std::vector<std::pair<GroupRole, std::vector<std::int32_t>>> groups;
  std::vector<Action> actions;
  std::int64_t launch = 0;
};

Case random_case() {
  Case c;
  c.ranks = *rc::gen::inRange(1, 7);
  // Role 0: pairs of neighbours; role 1: all ranks.
  for (int rank = 0; rank + 1 < c.ranks; rank += 2) c.groups.push_back({0, {rank, rank + 1}});
  std::vector<std::int32_t> all;
  for (int rank = 0; rank < c.ranks; ++rank) all.push_back(rank);
  c.groups.push_back({1, all});
  const int count = *rc::gen::inRange(1, 120);
  for (int i = 0; i < count; ++i) {
    Action action;
    if (*rc::gen::inRange(0, 4) == 0) action.group = *rc::gen::inRange(0, static_cast<int>(c.groups.size()));
    action.rank = *rc::gen::inRange(0, c.ranks);
    action.size = *rc::gen::oneOf(rc::gen::inRange<std::int64_t>(action.group < 0 ? 0 : 1, 4),
                                  rc::gen::inRange<std::int64_t>(1, 1000));
    action.stream = *rc::gen::element(0, 0, 0, 1, 2, 3, 4);
    const int waits = *rc::gen::inRange(0, 3);
    for (int w = 0; w < waits; ++w) action.waits.push_back(static_cast<EventSlot>(*rc::gen::inRange(0, kSlots)));
    if (*rc::gen::inRange(0, 2) == 0) action.record = static_cast<EventSlot>(*rc::gen::inRange(0, kSlots));
    c.actions.push_back(action);
  }
  c.launch = *rc::gen::element<std::int64_t>(0, 0, 7, 100);
  return c;
}

// Every third kernel is a GEMM ("gemm 12"), the others are bound by memory ("13").
std::size_t action_of(std::string_view label) {
  if (label.starts_with("gemm ")) label.remove_prefix(5);
  return static_cast<std::size_t>(std::stoi(std::string(label)));
}

// The op list of every rank: (action, op).
std::vector<std::vector<std::pair<std::size_t, Op>>> ops_by_rank(const Case& c) {
  std::vector<std::vector<std::pair<std::size_t, Op>>> ops(static_cast<std::size_t>(c.ranks));
  for (std::size_t i = 0; i < c.actions.size(); ++i) {
    const Action& action = c.actions[i];
    const std::string label = (action.group < 0 && i % 3 == 0 ? "gemm " : "") + std::to_string(i);
    if (action.group < 0) {
      Op op = with(kernel(label, static_cast<StreamId>(action.stream)), action.waits, action.record);
      ops[static_cast<std::size_t>(action.rank)].push_back({i, op});
      continue;
    }
    const auto& [role, members] = c.groups[static_cast<std::size_t>(action.group)];
    for (const std::int32_t rank : members) {
      ops[static_cast<std::size_t>(rank)].push_back(
          {i, with(all_reduce(label, role, action.size), action.waits, action.record)});
    }
  }
  return ops;
}

Schedule make(const Case& c) {
  Schedule schedule = make_schedule(c.ranks, {"pairs", "all"});
  for (const auto& [role, members] : c.groups) add_group(schedule, members, role);
  const auto ops = ops_by_rank(c);
  for (int rank = 0; rank < c.ranks; ++rank) {
    std::vector<Op> list;
    for (const auto& [action, op] : ops[static_cast<std::size_t>(rank)]) list.push_back(op);
    add_program(schedule, rank, list);
  }
  return schedule;
}

FixedDurations durations_of(const Case& c, std::int64_t scale = 1) {
  FixedDurations durations;
  durations.launch_ps = c.launch * scale;
  durations.rule = [&c, scale](const OpInstance& at) { return c.actions[action_of(at.op->label)].size * scale; };
  return durations;
}

struct Outcome {
  Totals totals;
  RecordedTimeline timeline;
};

Outcome simulate_case(const Schedule& schedule, const FixedDurations& durations, std::int64_t scale = 1,
                      SimulationOptions options = {}) {
  Outcome outcome;
  FixedNetwork network;
  network.rule = [scale](const CollectiveCall& call) { return call.buffer_bytes * scale; };
  options.sink = &outcome.timeline;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    options.trace.ranks.push_back(static_cast<std::int32_t>(rank));
  }
  outcome.totals = simulate(schedule, durations, network, options);
  return outcome;
}

// (rank, action) -> (start, end), by longest paths.
std::map<std::pair<int, std::size_t>, std::pair<std::int64_t, std::int64_t>> longest_paths(const Case& c) {
  struct RankState {
    std::map<int, std::int64_t> stream_end;
    std::map<int, std::int64_t> recorded;
    std::int64_t host = 0;
  };
  std::vector<RankState> ranks(static_cast<std::size_t>(c.ranks));
  std::map<std::pair<int, std::size_t>, std::pair<std::int64_t, std::int64_t>> times;
  for (std::size_t i = 0; i < c.actions.size(); ++i) {
    const Action& action = c.actions[i];
    std::vector<std::int32_t> members = {action.rank};
    int stream = action.stream;
    if (action.group >= 0) {
      members = c.groups[static_cast<std::size_t>(action.group)].second;
      stream = kFirstCommunicationStream + c.groups[static_cast<std::size_t>(action.group)].first;
    }
    std::int64_t start = 0;
    for (const std::int32_t rank : members) {
      RankState& state = ranks[static_cast<std::size_t>(rank)];
      state.host += c.launch;
      start = std::max({start, state.host, state.stream_end[stream]});
      for (const EventSlot slot : action.waits) start = std::max(start, state.recorded[slot]);
    }
    const std::int64_t end = start + (action.group < 0 ? action.size : 2 * action.size);
    for (const std::int32_t rank : members) {
      RankState& state = ranks[static_cast<std::size_t>(rank)];
      state.stream_end[stream] = end;
      if (action.record != kNoEvent) state.recorded[action.record] = end;
      times[{rank, i}] = {start, end};
    }
  }
  return times;
}

RC_GTEST_PROP(Executor, EveryOpStartsAndEndsAsTheLongestPathSays, ()) {
  const Case c = random_case();
  const Schedule schedule = make(c);
  const Outcome outcome = simulate_case(schedule, durations_of(c));
  const auto expected = longest_paths(c);
  RC_ASSERT(outcome.timeline.ops.size() == expected.size());
  std::int64_t last = 0;
  for (const OpRecord& record : outcome.timeline.ops) {
    const auto& [start, end] = expected.at({record.rank, action_of(record.label)});
    RC_ASSERT(record.start.ps() == start);
    RC_ASSERT(record.end.ps() == end);
    last = std::max(last, end);
  }
  RC_ASSERT(outcome.totals.step.ps() == last);
}

RC_GTEST_PROP(Executor, StepLiesBetweenTheBusiestRankAndTheSerialSum, ()) {
  Case c = random_case();
  c.launch = 0;
  FixedDurations durations = durations_of(c);
  durations.beside_communication = 1.25;
  const Schedule schedule = make(c);
  const Outcome outcome = simulate_case(schedule, durations);
  double serial = 0;
  for (const Action& action : c.actions)
    serial += action.group < 0 ? 1.25 * static_cast<double>(action.size) + 1 : 2.0 * static_cast<double>(action.size);
  for (const RankTotals& rank : outcome.totals.ranks) RC_ASSERT(rank.busy() <= outcome.totals.step);
  RC_ASSERT(static_cast<double>(outcome.totals.step.ps()) <= serial);
}

RC_GTEST_PROP(Executor, ScalingAllDurationsScalesTheStep, ()) {
  const Case c = random_case();
  const std::int64_t scale = *rc::gen::inRange<std::int64_t>(2, 1000);
  const Schedule schedule = make(c);
  const Outcome once = simulate_case(schedule, durations_of(c));
  const Outcome scaled = simulate_case(schedule, durations_of(c, scale), scale);
  RC_ASSERT(once.totals.step.ps() * scale == scaled.totals.step.ps());
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    RC_ASSERT(once.totals.ranks[rank].imbalance.ps() * scale == scaled.totals.ranks[rank].imbalance.ps());
    RC_ASSERT(once.totals.ranks[rank].launch.ps() * scale == scaled.totals.ranks[rank].launch.ps());
  }
}

void slow_everything(FixedDurations& durations) {
  durations.beside_communication = 1.375;
  durations.beside_host_copy = 1.5;
  durations.beside_kernel = 1.625;
  durations.transfers = {1.25, 1.125, 1.75, 1};
  durations.holds = true;
  durations.last_wave = 0.375;
}

// Nothing is faster than alone and starts are maxima of ends, so nothing starts or ends earlier.
RC_GTEST_PROP(Executor, SlowdownMakesNothingEarlier, ()) {
  const Case c = random_case();
  const Schedule schedule = make(c);
  FixedDurations durations = durations_of(c);
  slow_everything(durations);
  const auto alone = longest_paths(c);
  const Outcome outcome = simulate_case(schedule, durations);
  RC_ASSERT(outcome.timeline.ops.size() == alone.size());
  for (const OpRecord& record : outcome.timeline.ops) {
    const auto& [start, end] = alone.at({record.rank, action_of(record.label)});
    RC_ASSERT(record.start.ps() >= start);
    RC_ASSERT(record.end.ps() >= end);
    RC_ASSERT((record.end - record.start).ps() >= end - start);
  }
  for (const RankTotals& rank : outcome.totals.ranks) {
    RC_ASSERT(rank.contention >= Time::zero());
    RC_ASSERT(rank.busy() + rank.contention + rank.idle() == outcome.totals.step);
  }
}

// A transfer takes between its time alone and the largest factor of a kernel that runs beside it on any of its ranks.
RC_GTEST_PROP(Executor, TransfersSlowDownBesideKernelsOnly, ()) {
  const Case c = random_case();
  const Schedule schedule = make(c);
  FixedDurations durations = durations_of(c);
  durations.transfers = {1.25, 1, 1.5, 1};
  const Outcome outcome = simulate_case(schedule, durations);
  for (const OpRecord& record : outcome.timeline.ops) {
    if (record.kind != OpKind::kCollective) continue;
    const Action& action = c.actions[action_of(record.label)];
    const auto& members = c.groups[static_cast<std::size_t>(action.group)].second;
    const bool beside = std::any_of(outcome.timeline.ops.begin(), outcome.timeline.ops.end(), [&](const OpRecord& o) {
      return o.kind != OpKind::kCollective && o.stream != kCopyInStream && o.stream != kCopyOutStream &&
             std::find(members.begin(), members.end(), o.rank) != members.end() && o.start < record.end &&
             record.start < o.end;
    });
    const std::int64_t alone = 2 * action.size;
    const std::int64_t taken = (record.end - record.start).ps();
    RC_ASSERT(taken >= alone);
    RC_ASSERT(2 * taken <= (beside ? 3 * alone + 2 : 2 * alone));
  }
}

RC_GTEST_PROP(Executor, TwoRunsAreEqual, ()) {
  const Case c = random_case();
  const Schedule schedule = make(c);
  FixedDurations durations = durations_of(c);
  slow_everything(durations);
  RC_ASSERT(fingerprint(simulate_case(schedule, durations).timeline.ops) ==
            fingerprint(simulate_case(schedule, durations).timeline.ops));
}

// Ranks by other numbers: everything happens at the same times, so no rank's turn at an instant decides anything.
RC_GTEST_PROP(Executor, NumbersOfRanksDoNotMatter, ()) {
  const Case c = random_case();
  Case turned = c;
  const auto other = [&](std::int32_t rank) { return c.ranks - 1 - rank; };
  for (Action& action : turned.actions) action.rank = other(action.rank);
  for (auto& [role, members] : turned.groups) {
    for (std::int32_t& rank : members) rank = other(rank);
    std::sort(members.begin(), members.end());
  }
  FixedDurations durations = durations_of(c);
  slow_everything(durations);
  const auto times = [&](const Case& of, bool turn) {
    std::map<std::pair<std::int32_t, std::string>, std::vector<std::int64_t>> by_op;
    const Schedule schedule = make(of);
    const Outcome outcome = simulate_case(schedule, durations);
    for (const OpRecord& record : outcome.timeline.ops) {
      const std::int32_t rank = turn ? other(record.rank) : record.rank;
      by_op[{rank, std::string(record.label)}] = {record.arrival.ps(), record.start.ps(), record.end.ps()};
    }
    return by_op;
  };
  RC_ASSERT(times(c, false) == times(turned, true));
}

// Replicas of the same ranks that never meet: running one of them tells all of them.
RC_GTEST_PROP(Executor, FoldedEqualsUnfolded, ()) {
  const Case c = random_case();
  const int replicas = *rc::gen::inRange(2, 4);
  Schedule schedule = make(c);
  for (int replica = 1; replica < replicas; ++replica) {
    for (int rank = 0; rank < c.ranks; ++rank) {
      RankInfo info = schedule.ranks[static_cast<std::size_t>(rank)];
      for (GroupId& group : info.groups) {
        if (group >= 0) group += static_cast<GroupId>(c.groups.size()) * replica;
      }
      info.representative = rank;
      schedule.ranks.push_back(info);
    }
    for (const auto& [role, members] : c.groups) {
      Group copy;
      for (const std::int32_t rank : members) copy.members.push_back(rank + replica * c.ranks);
      schedule.groups.push_back(copy);
    }
  }
  FixedDurations durations = durations_of(c);
  slow_everything(durations);
  SimulationOptions unfolded;
  unfolded.unfolded = true;
  const Outcome one = simulate_case(schedule, durations);
  const Outcome all = simulate_case(schedule, durations, 1, unfolded);
  RC_ASSERT(one.totals.step == all.totals.step);
  RC_ASSERT(one.totals.ops * replicas == all.totals.ops);
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const RankTotals& a = one.totals.ranks[rank];
    const RankTotals& b = all.totals.ranks[rank];
    RC_ASSERT(a.compute == b.compute && a.kernel_kind == b.kernel_kind);
    RC_ASSERT(a.imbalance == b.imbalance && a.exposed_communication == b.exposed_communication && a.launch == b.launch);
    RC_ASSERT(a.contention == b.contention && a.communication == b.communication && a.end == b.end && a.tail == b.tail);
    RC_ASSERT(a.sent_intra_node == b.sent_intra_node && a.received == b.received && a.peak_bytes == b.peak_bytes);
  }
}

// Slowed kernels: the extra time is between nothing and the factor, and an undisturbed kernel takes exactly its time.
// A collective is on the device from its arrival on, also while it waits.
RC_GTEST_PROP(Executor, SlowdownStaysWithinTheFactor, ()) {
  const Case c = random_case();
  FixedDurations durations = durations_of(c);
  durations.beside_communication = 1.25;
  const Schedule schedule = make(c);
  const Outcome outcome = simulate_case(schedule, durations);
  for (const OpRecord& record : outcome.timeline.ops) {
    if (record.kind == OpKind::kCollective || record.stream == kCopyInStream || record.stream == kCopyOutStream)
      continue;
    const std::int64_t alone = c.actions[action_of(record.label)].size;
    // Work done beside transfers of this rank takes 5/4 of its time.
    const bool beside =
        std::any_of(outcome.timeline.ops.begin(), outcome.timeline.ops.end(), [&](const OpRecord& other) {
          return other.rank == record.rank && other.kind == OpKind::kCollective && other.arrival < record.end &&
                 record.start < other.end;
        });
    const std::int64_t taken = (record.end - record.start).ps();
    if (!beside) RC_ASSERT(taken == alone);
    RC_ASSERT(taken >= alone);
    RC_ASSERT(4 * taken <= 5 * alone + 4);
  }
}

}  // namespace
}  // namespace longhaul
