// Whole steps of the strategies of the device executor on the CPU's device, in bf16, against double precision: as right
// as the undistributed bf16 step, whatever order streams and events leave open. Planted faults are seen.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/schedule/checks.h"
#include "tests/unit/device/device_case.h"
#include "validate/cpu/errors.h"
#include "validate/cpu/reference.h"
#include "validate/device/host_device.h"
#include "validate/device/initial_values.h"
#include "validate/device/numerics.h"

namespace longhaul {
namespace {

StepOutcome run(const Schedule& schedule, HostOrder order) {
  const DevicePlan plan(schedule);
  HostDeviceOptions on;
  on.order = order;
  HostDevice device(on);
  VirtualTransport transport;
  ExecutorOptions options;
  options.poison = true;
  DeviceExecutor executor(plan, std::vector<Device*>(schedule.ranks.size(), &device), transport, options);
  return executor.run_step(numerics_wish(schedule));
}

// Empty if all is within its limit.
std::string faults(const std::vector<NumericsResult>& results) {
  std::string text;
  for (const NumericsResult& result : results) {
    if (result.pass) continue;
    text += fmt::format("{}: error {:.3g}, limit {:.3g}, undistributed {:.3g}, {}\n", result.quantity, result.error,
                        result.limit, result.undistributed_error, result.worst);
  }
  return text;
}

struct Prepared {
  std::shared_ptr<const Schedule> schedule;
  StepReference reference;
  std::vector<QuantityNorm> undistributed;
};

Prepared prepare(const DeviceCase& of) {
  Prepared prepared;
  prepared.schedule = schedule_of(of);
  const Schedule& schedule = *prepared.schedule;
  prepared.reference =
      reference_of(schedule.model, reference_step(schedule.model, *schedule.batch, bf16_parameters(schedule.model, 1)));
  const auto alone = undistributed_of(of);
  prepared.undistributed = relative_errors(*alone, run(*alone, HostOrder::kLaunch), prepared.reference);
  return prepared;
}

std::string judged(const Prepared& prepared, const Schedule& schedule, HostOrder order) {
  return faults(judge(relative_errors(schedule, run(schedule, order), prepared.reference), prepared.undistributed,
                      prepared.reference.name));
}

class DeviceStep : public testing::TestWithParam<std::string> {};

TEST_P(DeviceStep, IsAsRightAsTheUndistributedStep) {
  for (const int ranks : {2, 4}) {
    DeviceCase of;
    of.strategy = GetParam();
    of.ranks = ranks;
    of.zero_stage = ranks == 2 ? 0 : 3;
    of.recompute = ranks == 2 ? Recompute::kFull : Recompute::kNone;
    const Prepared prepared = prepare(of);
    for (const HostOrder order : {HostOrder::kLaunch, HostOrder::kLowestFirst, HostOrder::kHighestFirst}) {
      EXPECT_EQ(judged(prepared, *prepared.schedule, order), "")
          << ranks << " ranks, order " << static_cast<int>(order);
    }
  }
}

// What is wrong with a faulty schedule in some order: numbers, or a schedule that cannot be planned.
bool is_seen(const Prepared& prepared, const Schedule& faulty) {
  try {
    for (const HostOrder order : {HostOrder::kLowestFirst, HostOrder::kHighestFirst}) {
      if (!judged(prepared, faulty, order).empty()) return true;
    }
  } catch (const ScheduleError&) {
    return true;
  }
  return false;
}

DeviceCase small_case(const std::string& strategy) {
  DeviceCase of;
  of.strategy = strategy;
  of.ranks = 2;
  of.layers = 2;
  of.sequences = {{17, 8}, {24}};
  return of;
}

TEST_P(DeviceStep, SeesAWrongOffset) {
  const Prepared prepared = prepare(small_case(GetParam()));
  int planted = 0;
  for (const char* label : {"qkv", "attention_projection", "gate_up_weight_grad"}) {
    Schedule faulty = *prepared.schedule;
    bool changed = false;
    for (Segment& segment : faulty.segments) {
      for (Op& op : segment.ops) {
        if (op.label != label) continue;
        View& weight = op.operands[op.pass == Pass::kBackward ? 2 : 1];
        weight.flat_begin -= weight.columns / 2;  // half a row too early
        changed = true;
      }
    }
    if (!changed) continue;
    ++planted;
    EXPECT_TRUE(is_seen(prepared, faulty)) << label;
  }
  EXPECT_EQ(planted, 3);
}

// Every wait whose absence breaks the rules of a schedule, one at a time. Some leave all numbers right (what they order
// may be another pair of ops, or memory that the arena then keeps apart); of those on which numbers depend, some order
// must show it.
TEST_P(DeviceStep, SeesMissingWaits) {
  const Prepared prepared = prepare(small_case(GetParam()));
  int planted = 0, seen = 0;
  for (std::size_t s = 0; s < prepared.schedule->segments.size(); ++s) {
    for (std::size_t i = 0; i < prepared.schedule->segments[s].ops.size(); ++i) {
      if (prepared.schedule->segments[s].ops[i].waits.empty()) continue;
      Schedule faulty = *prepared.schedule;
      faulty.segments[s].ops[i].waits.clear();
      if (check_schedule(faulty).ok()) continue;
      ++planted;
      seen += is_seen(prepared, faulty) ? 1 : 0;
    }
  }
  std::printf("%s: %d waits taken away, %d seen in the numbers\n", GetParam().c_str(), planted, seen);
  EXPECT_GT(planted, 0);
  EXPECT_GE(2 * seen, planted);
}

std::vector<std::string> selected() {
  const char* name = std::getenv("LONGHAUL_STRATEGY");
  return name == nullptr ? device_strategies() : std::vector<std::string>{name};
}

INSTANTIATE_TEST_SUITE_P(Strategies, DeviceStep, testing::ValuesIn(selected()), [](const auto& suite) {
  std::string name = suite.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace longhaul
