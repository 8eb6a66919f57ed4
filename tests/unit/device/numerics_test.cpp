// Which quantities a step is compared by, and that each of them can fail.
#include "validate/device/numerics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/unit/device/device_case.h"
#include "validate/cpu/resident.h"
#include "validate/device/host_device.h"
#include "validate/device/initial_values.h"

namespace longhaul {
namespace {

StepOutcome run(const Schedule& schedule) {
  const DevicePlan plan(schedule);
  HostDevice device;
  VirtualTransport transport;
  ExecutorOptions options;
  options.poison = true;
  DeviceExecutor executor(plan, std::vector<Device*>(schedule.ranks.size(), &device), transport, options);
  return executor.run_step(numerics_wish(schedule));
}

const QuantityNorm* find(const std::vector<QuantityNorm>& errors, const std::string& quantity) {
  const auto found =
      std::find_if(errors.begin(), errors.end(), [&](const QuantityNorm& of) { return of.quantity == quantity; });
  return found == errors.end() ? nullptr : &*found;
}

// Groups follow each other without gaps up to the end of their unit.
TEST(ParameterGroups, HoldEveryElementOnce) {
  for (const bool extra : {false, true}) {
    DeviceCase of;
    of.strategy = "allgather-cp";
    of.qkv_bias = of.qk_norm = extra;
    const ModelShape model = schedule_of(of)->model;
    for (const UnitKind unit : {UnitKind::kEmbedding, UnitKind::kLayer, UnitKind::kHead}) {
      std::int64_t end = 0;
      for (const ParameterGroup& group : parameter_groups(model)) {
        if (group.unit != unit) continue;
        EXPECT_EQ(group.begin, end) << group.name;
        EXPECT_GT(group.end, group.begin) << group.name;
        end = group.end;
      }
      EXPECT_EQ(end, unit_elements(model, unit));
    }
  }
}

// 2 layers of 2 ranks: bias of 4 x 16 + 2 x 2 x 16 = 128, norms of 2 x 16. No op gives them a gradient: zero arrives,
// and a value that is not zero is an error without bound. Models without them have no such quantity.
TEST(Numerics, GradientsOfBiasAndNormsAreCompared) {
  DeviceCase of;
  of.strategy = "allgather-cp";
  of.qkv_bias = of.qk_norm = true;
  const auto schedule = schedule_of(of);
  const StepReference reference = reference_of(
      schedule->model, reference_step(schedule->model, *schedule->batch, bf16_parameters(schedule->model, 1)));
  StepOutcome outcome = run(*schedule);
  const std::vector<QuantityNorm> errors = relative_errors(*schedule, outcome, reference);
  const QuantityNorm* const extra = find(errors, "extra");
  ASSERT_NE(extra, nullptr);
  EXPECT_EQ(extra->elements, 2 * (128 + 32));
  EXPECT_EQ(extra->missing, 0);
  EXPECT_EQ(extra->error, 0);

  const ParameterGroup group = [&] {
    for (const ParameterGroup& each : parameter_groups(schedule->model)) {
      if (each.name == "extra") return each;
    }
    return ParameterGroup{};
  }();
  bool planted = false;
  for (StepTensor& tensor : outcome.tensors) {
    const auto range = tensor.resident ? unit_range(*schedule, tensor.rank, tensor.id, "grads", "grad_shard")
                                       : std::optional<UnitRange>();
    if (!range || range->unit != UnitKind::kLayer) continue;
    if (group.begin < range->begin || group.begin >= range->begin + range->count) continue;
    const Bf16 value = to_bf16(1.0F);
    std::memcpy(tensor.bytes.data() + 2 * (group.begin - range->begin), &value, sizeof value);
    planted = true;
    break;
  }
  ASSERT_TRUE(planted);
  const std::vector<QuantityNorm> wrong = relative_errors(*schedule, outcome, reference);
  EXPECT_TRUE(std::isinf(find(wrong, "extra")->error));
  EXPECT_EQ(find(wrong, "down")->error, find(errors, "down")->error);
  for (const NumericsResult& result : judge(wrong, errors, reference.name)) {
    EXPECT_EQ(result.pass, result.quantity != "extra") << result.quantity;
  }

  of.qkv_bias = of.qk_norm = false;
  const auto plain = schedule_of(of);
  const StepReference of_plain =
      reference_of(plain->model, reference_step(plain->model, *plain->batch, bf16_parameters(plain->model, 1)));
  EXPECT_EQ(find(relative_errors(*plain, run(*plain), of_plain), "extra"), nullptr);
}

// Two bf16 steps drift apart with depth: what a second undistributed step differs by counts twice, below it the limit
// of activations. A row that nobody holds is wrong at any distance.
TEST(JudgeAgainstStep, AllowsTwiceWhatOtherKernelsDifferBy) {
  const std::vector<QuantityNorm> other = {
      {"dQ", 1.2e-2, 8, 0, ""}, {"dK", 4e-3, 8, 0, ""}, {"head", 1.5e-2, 8, 0, ""}};
  const auto passes = [&](const QuantityNorm& of, const std::vector<QuantityNorm>& beside) {
    const std::vector<NumericsResult> results = judge_against_step({of}, beside);
    EXPECT_EQ(results.front().reference, "undistributed-bf16");
    return results.front().pass;
  };
  EXPECT_TRUE(passes({"dQ", 2.3e-2, 8, 0, ""}, other));
  EXPECT_FALSE(passes({"dQ", 2.5e-2, 8, 0, ""}, other));
  EXPECT_FALSE(passes({"dQ", 2.3e-2, 8, 0, ""}, {}));
  EXPECT_TRUE(passes({"dK", 1.9e-2, 8, 0, ""}, other));
  EXPECT_FALSE(passes({"dK", 2.1e-2, 8, 0, ""}, other));
  EXPECT_TRUE(passes({"head", 2.9e-2, 8, 0, ""}, other));
  EXPECT_FALSE(passes({"dQ", 1e-3, 8, 1, ""}, other));
}

}  // namespace
}  // namespace longhaul
