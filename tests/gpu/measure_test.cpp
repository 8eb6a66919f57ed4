// The parts of longhaul-measure that need GPUs: the device's check finds every fault, graphs replay, ranks agree.

#include <gtest/gtest.h>

#include <vector>

#include "kernels/common/device_buffer.h"
#include "kernels/common/stream.h"
#include "tests/gpu/device.h"
#include "validate/gpu/call_graph.h"
#include "validate/gpu/communicator.h"
#include "validate/gpu/device_data.h"
#include "validate/gpu/machine.h"
#include "validate/gpu/pattern.h"
#include "validate/gpu/rank_team.h"

namespace longhaul {
namespace {

using DeviceDataTest = GpuTest<>;

TEST_F(DeviceDataTest, FillsAsTheHostDoes) {
  Stream stream;
  constexpr std::int64_t kCount = 3'000'001;
  DeviceBuffer<float> data(kCount);
  data.poison(stream.get());
  fill_pattern(data.data(), kCount, 5, stream.get());
  const std::vector<float> result = data.download(stream.get());
  for (std::int64_t i = 0; i < kCount; ++i) ASSERT_EQ(result[static_cast<std::size_t>(i)], pattern_value(5, i)) << i;
}

// A copy of rank 3's elements 100 .. 999 at 50, then the sum over 4 ranks of 0 .. 499.
TEST_F(DeviceDataTest, CountsEveryWrongElement) {
  const std::vector<ReceivedRun> runs = {{3, 100, 50, 900}, {ReceivedRun::kSumOfAll, 0, 950, 500}};
  std::vector<float> right(1450, 0);
  for (std::int64_t i = 0; i < 900; ++i) right[static_cast<std::size_t>(50 + i)] = pattern_value(3, 100 + i);
  for (std::int64_t i = 0; i < 500; ++i) right[static_cast<std::size_t>(950 + i)] = pattern_sum(4, i);
  Stream stream;
  DeviceBuffer<float> data(right.size());
  data.upload(right, stream.get());
  EXPECT_EQ(count_mismatches(data.data(), runs, 4, stream.get()), 0);
  for (const std::size_t at : {50U, 949U, 950U, 1449U}) right[at] += 1;
  data.upload(right, stream.get());
  EXPECT_EQ(count_mismatches(data.data(), runs, 4, stream.get()), 4);
  data.poison(stream.get());
  EXPECT_EQ(count_mismatches(data.data(), runs, 4, stream.get()), 1400);
}

using CallGraphTest = GpuTest<>;

TEST_F(CallGraphTest, ReplaysWhatItCaptured) {
  Stream stream;
  DeviceBuffer<float> data(1000);
  const CallGraph graph(stream.get(), [&] { fill_pattern(data.data(), 1000, 2, stream.get()); });
  data.poison(stream.get());
  EXPECT_EQ(count_mismatches(data.data(), {{2, 0, 0, 1000}}, 1, stream.get()), 1000);  // captured, not run
  graph.launch(stream.get());
  EXPECT_EQ(count_mismatches(data.data(), {{2, 0, 0, 1000}}, 1, stream.get()), 0);
}

class RanksTest : public GpuTest<> {
 protected:
  void SetUp() override {
    GpuTest<>::SetUp();
    if (!IsSkipped() && visible_gpus() < 2) GTEST_SKIP() << "needs 2 GPUs, " << visible_gpus() << " is there";
  }
  static void fail(int rank, std::exception_ptr fault) {
    try {
      std::rethrow_exception(fault);
    } catch (const std::exception& error) {
      FAIL() << "rank " << rank << ": " << error.what();
    }
  }
};

TEST_F(RanksTest, Agree) {
  RankTeam(2, fail).run([](RankTeam::Member& member) {
    const double mine = member.rank() + 1;
    EXPECT_EQ(member.max(mine), 2);
    EXPECT_EQ(member.mean(mine), 1.5);
    EXPECT_EQ(member.gather({mine, 10 * mine}), (std::vector<double>{1, 10, 2, 20}));
  });
}

// Every collective and every uneven plan, small, against exact values.
TEST_F(RanksTest, GetRightResultsFromEveryCall) {
  const ncclUniqueId id = make_nccl_id();
  RankTeam(2, fail).run([&](RankTeam::Member& member) {
    constexpr std::int64_t kBytes = 98304;
    Stream stream;
    const Communicator comm(id, 2, member.rank());
    DeviceBuffer<float> send(kBytes), receive(kBytes);
    fill_pattern(send.data(), kBytes, member.rank(), stream.get());
    const auto expect_right = [&](const std::vector<ReceivedRun>& runs, const std::string& name) {
      EXPECT_EQ(count_mismatches(receive.data(), runs, 2, stream.get()), 0) << name << ", rank " << member.rank();
      receive.poison(stream.get());
    };
    receive.poison(stream.get());
    for (const MeasuredCollective collective : measured_collectives()) {
      const CollectiveShape shape = *shape_of(collective, 2, kBytes);
      comm.enqueue(shape, send.data(), receive.data(), stream.get());
      expect_right(received_runs(shape, member.rank()), std::string(collective_name(collective)));
    }
    for (const ExchangePlan& plan : all_to_all_plans(2, kBytes)) {
      comm.enqueue_exchange(plan, send.data(), receive.data(), stream.get());
      expect_right(received_runs(plan, member.rank()), plan.distribution);
    }
    for (const ExchangePlan& plan : all_gather_plans(2, kBytes)) {
      comm.enqueue_exchange(plan, send.data(), receive.data(), stream.get());
      expect_right(received_runs(plan, member.rank()), plan.distribution + " by sends");
      comm.enqueue_broadcasts(plan, send.data(), receive.data(), stream.get());
      expect_right(received_runs(plan, member.rank()), plan.distribution + " by broadcasts");
    }
    member.barrier();
  });
}

}  // namespace
}  // namespace longhaul
