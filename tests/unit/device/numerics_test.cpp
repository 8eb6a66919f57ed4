// Which quantities a step is compared by, and that each of them can fail.
#include "validate/device/numerics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "tests/unit/device/device_case.h"
#include "validate/cpu/resident.h"
#include "validate/device/host_device.h"
#include "validate/device/initial_values.h"
#include "validate/device/sampled_rows.h"

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

// Two models that differ in their bias and norms alone, one after the other in one thread.
TEST(InitialValues, AreOfTheModelThatIsAsked) {
  for (const bool extra : {false, true, false}) {
    DeviceCase of;
    of.strategy = "allgather-cp";
    of.qkv_bias = of.qk_norm = extra;
    const auto schedule = schedule_of(of);
    const ParameterValues expected = bf16_parameters(schedule->model, 1);
    std::int64_t compared = 0;
    const auto compare = [&](std::int32_t rank, const TensorId& id, const std::vector<std::byte>& bytes) {
      const auto range = resident_range(*schedule, rank, id);
      const TensorKind& kind = schedule->tensors[static_cast<std::size_t>(id.kind)];
      if (!range || range->unit != UnitKind::kLayer || kind.type != ElementType::kBf16) return;
      const std::vector<double>& layer = expected.layers[static_cast<std::size_t>(range->layer)];
      const std::int64_t end = std::min(range->begin + range->count, static_cast<std::int64_t>(layer.size()));
      for (std::int64_t i = range->begin; i < end; ++i, ++compared) {
        Bf16 value;
        std::memcpy(&value, bytes.data() + 2 * (i - range->begin), 2);
        ASSERT_EQ(to_float(value), layer[static_cast<std::size_t>(i)]) << "element " << i << ", extra " << extra;
      }
    };
    load_residents(*schedule, {0, 1}, 1, compare);
    EXPECT_EQ(compared, schedule->model.layers * unit_elements(schedule->model, UnitKind::kLayer));
  }
}

// A kernel that makes NaN makes it in the undistributed step too: what that step's error says of a limit is then
// nothing.
TEST(Judge, ABrokenUndistributedStepAllowsNothing) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double error : {1e-3, kInfinity}) {
    const std::vector<QuantityNorm> of = {{"qkv", error, 8, 0, ""}}, broken = {{"qkv", kInfinity, 8, 0, ""}};
    EXPECT_FALSE(judge(of, broken, "fp64").front().pass) << error;
    EXPECT_FALSE(judge_against_step(of, broken).front().pass) << error;
    EXPECT_FALSE(judge_rows(of, broken).front().pass) << error;
  }
}

// Zeros have an error of 1: an undistributed step that errs by half would let everything through at twice that.
TEST(Judge, ALimitThatZerosWouldPassAllowsNothing) {
  for (const auto& [alone, passes] : {std::pair{0.25, true}, {0.5, false}, {2.0, false}}) {
    const std::vector<QuantityNorm> of = {{"qkv", 0.3, 8, 0, ""}}, beside = {{"qkv", alone, 8, 0, ""}};
    EXPECT_EQ(judge(of, beside, "fp64").front().pass, passes) << alone;
    EXPECT_EQ(judge_against_step(of, beside).front().pass, passes) << alone;
    EXPECT_EQ(judge_rows(of, beside).front().pass, passes) << alone;
  }
}

// Without one rank's O of one layer, its rows are missing with all their columns.
TEST(RelativeErrors, MissingIsCountedInElements) {
  DeviceCase of;
  of.strategy = "allgather-cp";
  const auto schedule = schedule_of(of);
  const StepReference reference = reference_of(
      schedule->model, reference_step(schedule->model, *schedule->batch, bf16_parameters(schedule->model, 1)));
  StepOutcome outcome = run(*schedule);
  const QuantityNorm whole = *find(relative_errors(*schedule, outcome, reference), "O");
  EXPECT_EQ(whole.missing, 0);
  const auto lost = std::find_if(outcome.tensors.begin(), outcome.tensors.end(), [&](const StepTensor& tensor) {
    return !tensor.before_op && schedule->tensors[static_cast<std::size_t>(tensor.id.kind)].name == "attention_output";
  });
  ASSERT_NE(lost, outcome.tensors.end());
  outcome.tensors.erase(lost);
  const QuantityNorm cut = *find(relative_errors(*schedule, outcome, reference), "O");
  EXPECT_GT(cut.missing, 0);
  EXPECT_EQ(cut.missing % schedule->model.q_width(), 0);
  EXPECT_EQ(cut.missing, whole.elements - cut.elements);
  EXPECT_EQ(cut.worst, std::to_string(cut.missing) + " elements of the reference are held by no rank");
}

// Infinity in a layer of the reference: infinity / infinity is no error that the next layer's may hide.
TEST(RelativeErrors, AnInfiniteReferenceIsNoReference) {
  DeviceCase of;
  of.strategy = "allgather-cp";
  const auto schedule = schedule_of(of);
  StepReference reference = reference_of(
      schedule->model, reference_step(schedule->model, *schedule->batch, bf16_parameters(schedule->model, 1)));
  ASSERT_GT(reference.layers.size(), 1U);
  reference.layers.front().o.values.row(0)[0] = std::numeric_limits<float>::infinity();
  const std::vector<QuantityNorm> errors = relative_errors(*schedule, run(*schedule), reference);
  EXPECT_TRUE(std::isinf(find(errors, "O")->error)) << find(errors, "O")->error;
  EXPECT_FALSE(judge(errors, {}, reference.name)[1].pass);
}

}  // namespace
}  // namespace longhaul
