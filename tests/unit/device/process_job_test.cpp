// Several processes of one run: how they find each other, share GPUs, run a step together and end together. Processes
// are threads here; tests/unit/cli/mpi_test.cpp has real ones.

#include "validate/device/process_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "sim/core/error.h"
#include "tests/unit/device/device_case.h"
#include "tests/unit/device/thread_job.h"
#include "validate/device/host_device.h"
#include "validate/device/job_run.h"
#include "validate/device/job_transport.h"
#include "validate/device/numerics.h"

namespace longhaul {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::map<std::string, std::string>& variables() {
  static std::map<std::string, std::string> set;
  return set;
}

const char* variable(const char* name) {
  const auto found = variables().find(name);
  return found == variables().end() ? nullptr : found->second.c_str();
}

std::optional<LaunchedProcess> launched(std::map<std::string, std::string> set) {
  variables() = std::move(set);
  return launched_process(variable);
}

TEST(LaunchedProcessTest, EveryLauncherSaysWhoThisIs) {
  const auto open_mpi = launched({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "2"}});
  ASSERT_TRUE(open_mpi);
  EXPECT_EQ(open_mpi->process, 2);
  EXPECT_EQ(open_mpi->processes, 4);
  const auto mpich = launched({{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}});
  ASSERT_TRUE(mpich);
  EXPECT_EQ(mpich->processes, 2);
  const auto slurm = launched({{"SLURM_STEP_NUM_TASKS", "16"}, {"SLURM_PROCID", "15"}});
  ASSERT_TRUE(slurm);
  EXPECT_EQ(slurm->process, 15);
}

TEST(LaunchedProcessTest, OneProcessIsNoJob) {
  EXPECT_FALSE(launched({}));
  EXPECT_FALSE(launched({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}));
  // A batch script has the tasks of its allocation, but was not started by srun.
  EXPECT_FALSE(launched({{"SLURM_NTASKS", "16"}, {"SLURM_PROCID", "0"}}));
  EXPECT_FALSE(launched({{"PMI_SIZE", "many"}, {"PMI_RANK", "0"}}));
}

std::string fault_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const LimitError& error) {
    return error.what();
  }
  return "";
}

TEST(RanksOfEachTest, DivideOrSayWhatWould) {
  EXPECT_EQ(ranks_of_each(8, 4), 2);
  EXPECT_EQ(ranks_of_each(8, 8), 1);
  EXPECT_EQ(fault_of([] { ranks_of_each(8, 3); }), "3 processes do not share 8 ranks evenly; start 2 processes");
  EXPECT_EQ(fault_of([] { ranks_of_each(4, 6); }), "6 processes do not share 4 ranks evenly; start 4 processes");
}

TEST(ShareGpusTest, ProcessesOfAHostDivideWhatAllSee) {
  const std::vector<std::string> four = {"1b", "43", "52", "61"};
  EXPECT_THAT(share_gpus({{"a", four}, {"a", four}}), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(share_gpus({{"a", four}, {"a", four}, {"b", four}, {"b", four}}),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(share_gpus({{"a", four}, {"a", four}, {"a", four}}),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
  EXPECT_THAT(share_gpus({{"a", four}, {"b", four}}), ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(0, 1, 2, 3)));
}

TEST(ShareGpusTest, ALauncherMayGiveEveryProcessItsOwn) {
  EXPECT_THAT(share_gpus({{"a", {"1b"}}, {"a", {"43"}}}), ElementsAre(ElementsAre(0), ElementsAre(0)));
  EXPECT_THAT(share_gpus({{"a", {"1b", "43"}}, {"a", {"52", "61"}}}),
              ElementsAre(ElementsAre(0, 1), ElementsAre(0, 1)));
}

TEST(ShareGpusTest, FaultsNameTheProcess) {
  EXPECT_THAT(fault_of([] {
                share_gpus({{"a", {"1b"}}, {"a", {"1b"}}});
              }),
              HasSubstr("process 0 of 2 on a gets no GPU: 2 processes run on that host, which has 1"));
  EXPECT_THAT(fault_of([] { share_gpus({{"a", {"1b"}}, {"b", {}}}); }), HasSubstr("process 1 of 2 on b gets no GPU"));
  EXPECT_THAT(fault_of([] {
                share_gpus({{"a", {"1b", "43"}}, {"a", {"43"}}});
              }),
              StartsWith("process 1 of 2 on a sees GPU 43, and so does process 0"));
  EXPECT_THAT(fault_of([] {
                share_gpus({{"a", {"1b"}}, {"b", {"1b"}}, {"a", {"43"}}});
              }),
              StartsWith("process 2 of 3 on a comes after processes of another host"));
}

TEST(ProcessMessagesTest, TextsOfAnyLengthArriveInOrder) {
  ThreadJobs jobs(2);
  jobs.run([](ProcessJob& job) {
    if (job.process() == 0) {
      send_text(job, 1, "");
      send_text(job, 1, std::string(100'000, 'x'));
      EXPECT_EQ(receive_text(job, 1), "process 1 of 2 on testhost");
    } else {
      EXPECT_EQ(receive_text(job, 0), "");
      EXPECT_EQ(receive_text(job, 0).size(), 100'000U);
      send_text(job, 0, process_name(job));
    }
  });
  EXPECT_EQ(jobs.left(), 0U);
}

// One run of `schedule` in so many processes, each with HostDevices for its ranks.
struct RunTogether {
  std::shared_ptr<const Schedule> schedule;
  int processes = 2;
  std::int32_t repeats = 2;
  HostDeviceOptions device;       // of `faulty` alone
  int faulty = -1, hanging = -1;  // processes
  std::string hanging_kernel;
  bool deaf = false;  // transfers are noise: nobody waits for anybody
  StepOutcome outcome;
  std::vector<bool> followers_faulted;

  RunRecord run(ThreadJobs& jobs);
};

class DeafTransport : public Transport {
 public:
  std::string label(CollectiveKind) const override { return "noise"; }
  void launch(const LoweredCall& call, const std::vector<CallMember>& members) override {
    for (const CallMember& member : members) {
      if (member.device != nullptr && member.takes_part) launch_stand_in(call, member);
    }
  }
};

RunRecord RunTogether::run(ThreadJobs& jobs) {
  RunRecord record;
  followers_faulted.assign(static_cast<std::size_t>(processes), false);
  const DevicePlan plan(*schedule);
  const StepWish wish = numerics_wish(*schedule);
  ExecutorOptions options;
  options.repeats = repeats;
  options.warmups = 0;
  options.careful = true;
  options.timeout = std::chrono::milliseconds(5);
  std::mutex mutex;
  jobs.run([&](ProcessJob& job) {
    const std::int32_t each = ranks_of_each(plan.ranks(), processes);
    std::vector<std::unique_ptr<HostDevice>> owned;
    std::vector<Device*> devices(static_cast<std::size_t>(plan.ranks()), nullptr);
    for (std::int32_t i = 0; i < each; ++i) {
      HostDeviceOptions with = job.process() == faulty ? device : HostDeviceOptions{};
      if (job.process() == hanging) with.hanging_kernel = hanging_kernel;
      owned.push_back(std::make_unique<HostDevice>(with));
      devices[static_cast<std::size_t>(job.process() * each + i)] = owned.back().get();
    }
    JobTransport messages(job, each);
    DeafTransport noise;
    Transport& transport = deaf ? static_cast<Transport&>(noise) : messages;
    try {
      if (job.process() > 0) {
        const bool faulted = follow_run(job, plan, devices, transport, options, wish);
        const std::lock_guard lock(mutex);
        followers_faulted[static_cast<std::size_t>(job.process())] = faulted;
        return;
      }
      record = lead_run(job, plan, devices, transport, options, wish,
                        [&](StepOutcome all, RunRecord&) { outcome = std::move(all); });
    } catch (const LimitError& error) {
      if (transport.survives_faults()) throw;
      const std::lock_guard lock(mutex);
      record.failure.message = process_name(job) + ": " + error.what();
      job.abort(3);
    }
  });
  return record;
}

StepOutcome alone(const Schedule& schedule) {
  const DevicePlan plan(schedule);
  HostDevice device;
  VirtualTransport transport;
  DeviceExecutor executor(plan, std::vector<Device*>(schedule.ranks.size(), &device), transport, {});
  return executor.run_step(numerics_wish(schedule));
}

void sort_tensors(StepOutcome& outcome) {
  std::stable_sort(outcome.tensors.begin(), outcome.tensors.end(), [](const StepTensor& a, const StepTensor& b) {
    return std::tuple(a.rank, a.resident, a.position, a.id.key()) <
           std::tuple(b.rank, b.resident, b.position, b.id.key());
  });
}

class RunOfProcesses : public testing::TestWithParam<std::tuple<std::string, int>> {};

// Messages move what copies on one device move, and sums have the same order: equal to the bit.
TEST_P(RunOfProcesses, HasTheNumbersOfOneProcess) {
  DeviceCase of;
  of.strategy = std::get<0>(GetParam());
  of.ranks = 4;
  RunTogether run;
  run.schedule = schedule_of(of);
  run.processes = std::get<1>(GetParam());
  ThreadJobs jobs(run.processes);
  const RunRecord record = run.run(jobs);
  EXPECT_EQ(record.failure.message, "");
  EXPECT_EQ(jobs.left(), 0U);

  StepOutcome expected = alone(*run.schedule);
  sort_tensors(expected);
  sort_tensors(run.outcome);
  EXPECT_NEAR(run.outcome.loss, expected.loss, 1e-12 * std::abs(expected.loss));
  ASSERT_EQ(run.outcome.tensors.size(), expected.tensors.size());
  for (std::size_t i = 0; i < expected.tensors.size(); ++i) {
    const StepTensor& have = run.outcome.tensors[i];
    const StepTensor& want = expected.tensors[i];
    ASSERT_EQ(have.id, want.id);
    ASSERT_EQ(have.rank, want.rank);
    ASSERT_EQ(have.at.op, want.at.op);
    ASSERT_EQ(have.at.chunk, want.at.chunk);
    ASSERT_EQ(have.at.layer, want.at.layer);
    ASSERT_EQ(have.bytes, want.bytes) << i << " of rank " << want.rank;
  }
  ASSERT_EQ(record.rank_runs.size(), 4U);
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(record.rank_runs[static_cast<std::size_t>(rank)].rank, rank);
    EXPECT_EQ(record.rank_runs[static_cast<std::size_t>(rank)].step_ps.size(), 2U);
  }
  EXPECT_EQ(record.placement, RankPlacement::kReal);
  EXPECT_EQ(record.hardware.devices, 4);
  EXPECT_EQ(record.step_ps.size(), 2U);
}

INSTANTIATE_TEST_SUITE_P(Strategies, RunOfProcesses,
                         testing::Combine(testing::Values("allgather-cp", "ulysses", "1f1b", "flashcp"),
                                          testing::Values(2, 4)),
                         [](const auto& of) {
                           std::string name = std::get<0>(of.param) + "_" + std::to_string(std::get<1>(of.param));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

RunTogether two_processes() {
  DeviceCase of;
  of.strategy = "allgather-cp";
  of.sequences = {{12}};
  of.layers = 1;
  RunTogether run;
  run.schedule = schedule_of(of);
  return run;
}

TEST(RunOfProcessesFaults, AKernelThatFailsElsewhereEndsTheRunAndNamesItsProcess) {
  RunTogether run = two_processes();
  run.deaf = true;
  run.faulty = 1;
  run.device.failing_kernel = "swiglu";
  ThreadJobs jobs(2);
  const RunRecord record = run.run(jobs);
  EXPECT_EQ(record.failure.kind, "kernel");
  EXPECT_EQ(record.failure.message, "process 1 of 2 on testhost: a planted fault");
  EXPECT_EQ(record.failure.kernel, "swiglu");
  EXPECT_EQ(record.failure.rank, 1);
  EXPECT_THAT(record.failure.op, HasSubstr("`swiglu` (forward, layer 0, chunk 0)"));
  EXPECT_TRUE(run.outcome.tensors.empty()) << "numbers of a broken step were compared";
  EXPECT_TRUE(run.followers_faulted[1]);
  EXPECT_EQ(jobs.left(), 0U);
}

TEST(RunOfProcessesFaults, AKernelThatFailsInTheFirstEndsTheOthers) {
  RunTogether run = two_processes();
  run.deaf = true;
  run.faulty = 0;
  run.device.failing_kernel = "swiglu";
  ThreadJobs jobs(2);
  const RunRecord record = run.run(jobs);
  EXPECT_EQ(record.failure.message, "process 0 of 2 on testhost: a planted fault");
  EXPECT_TRUE(run.followers_faulted[1]);
  EXPECT_EQ(jobs.left(), 0U);
}

TEST(RunOfProcessesFaults, TheCauseGoesBeforeTheHangsThatFollow) {
  RunTogether run = two_processes();
  run.deaf = true;
  run.faulty = 1;
  run.device.failing_kernel = "swiglu";
  run.hanging = 0;
  run.hanging_kernel = "swiglu";
  ThreadJobs jobs(2);
  const RunRecord record = run.run(jobs);
  EXPECT_EQ(record.failure.kind, "kernel");
  EXPECT_THAT(record.failure.message, StartsWith("process 1 of 2"));
}

TEST(RunOfProcessesFaults, MemoryThatDoesNotFitLeavesTheProcessUsable) {
  RunTogether run = two_processes();
  run.deaf = true;
  run.faulty = 1;
  run.device.memory_bytes = 1000;
  ThreadJobs jobs(2);
  const RunRecord record = run.run(jobs);
  EXPECT_EQ(record.failure.kind, "memory");
  EXPECT_THAT(record.failure.message, StartsWith("process 1 of 2 on testhost: the plan needs"));
  EXPECT_FALSE(run.followers_faulted[1]);
}

// Who waits in a message of a process that ended would wait for ever: the job ends.
TEST(RunOfProcessesFaults, OverMessagesAFaultEndsTheJob) {
  RunTogether run = two_processes();
  run.faulty = 1;
  run.device.failing_kernel = "swiglu";
  ThreadJobs jobs(2);
  const RunRecord record = run.run(jobs);
  EXPECT_EQ(jobs.abort_code(), 3);
  EXPECT_THAT(record.failure.message, StartsWith("process 1 of 2 on testhost: kernel: rank 1 `swiglu`"));
}

}  // namespace
}  // namespace longhaul
