// Every strategy on random batches and on corners: the executed schedule equals the undistributed step to 1e-10 in
// loss, every parameter gradient, O, dQ, dK and dV, and no rule of the schedule is broken. One test a strategy, so that
// several run at once; draws that the strategy cannot run are drawn again and counted.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "tests/property/validate/verify_case.h"
#include "validate/cpu/verify.h"

namespace longhaul {
namespace {

std::int64_t draw_by_rapidcheck(std::int64_t low, std::int64_t high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(low, high + 1));
}

// Empty if the report passes, else what does not.
std::string faults(const VerifyReport& report, double tolerance) {
  std::string text;
  for (const QuantityError& quantity : report.quantities) {
    if (quantity.error <= tolerance) continue;
    text +=
        fmt::format("{}: error {}, missing {}, {}\n", quantity.name, quantity.error, quantity.missing, quantity.worst);
  }
  return text + fmt::format("{}", fmt::join(report.violations, "\n"));
}

// The one that LONGHAUL_STRATEGY names, or all.
std::vector<std::string> selected() {
  const char* name = std::getenv("LONGHAUL_STRATEGY");
  return name == nullptr ? strategy_names() : std::vector<std::string>{name};
}

class EveryStrategy : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_NE(find_strategy(GetParam()), nullptr) << "no strategy is called " << GetParam(); }
  const Strategy& strategy() const { return *find_strategy(GetParam()); }
};

TEST_P(EveryStrategy, EqualsTheUndistributedStepOnRandomBatches) {
  std::map<std::string, int> redrawn;
  double worst = 0;
  int verified = 0;
  const bool passed = rc::check("verify to 1e-10: " + strategy().name, [&] {
    const VerifyCase drawn = draw_applicable(strategy(), draw_by_rapidcheck, redrawn);
    VerifyOptions options;
    options.order = static_cast<ExecutionOrder>(draw_by_rapidcheck(0, 3));
    options.order_seed = static_cast<std::uint64_t>(draw_by_rapidcheck(1, 1000));
    RC_LOG() << describe(drawn.request) << "\norder " << static_cast<int>(options.order) << "\n";
    std::string found;
    try {
      const VerifyReport report = verify(*drawn.schedule, options);
      found = faults(report, options.tolerance);
      worst = std::max(worst, report.worst);
      ++verified;
      if (found.empty() && !report.pass) found = "the report does not pass";
    } catch (const ScheduleError& error) {
      found = error.what();
    }
    if (!found.empty()) RC_FAIL(found);
  });
  std::printf("%s: %d verified, worst error %.2g\n", strategy().name.c_str(), verified, worst);
  for (const auto& [reason, count] : redrawn) std::printf("  drawn again %4d: %s\n", count, reason.c_str());
  EXPECT_TRUE(passed);
}

TEST_P(EveryStrategy, EqualsTheUndistributedStepOnCorners) {
  int verified = 0;
  for (const CornerCase& corner : corner_cases(strategy())) {
    SCOPED_TRACE(corner.name + ": " + describe(corner.request));
    const auto applicable = check_applicable(strategy(), corner.request);
    ASSERT_TRUE(applicable.has_value()) << applicable.error();
    const Planned planned = strategy().plan(corner.request);
    ASSERT_TRUE(planned.has_value()) << planned.error();
    const VerifyReport report = verify(*planned->schedule);
    EXPECT_EQ(faults(report, 1e-10), "");
    EXPECT_TRUE(report.pass);
    ++verified;
  }
  EXPECT_GE(verified, 8);
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Strategy, EveryStrategy, testing::ValuesIn(selected()), test_name);

}  // namespace
}  // namespace longhaul
