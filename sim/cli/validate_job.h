// `longhaul validate` in several processes that mpirun or srun started (validate/device/process_job.h).
//
// Process 0 reads the command line's files, chooses the study, compares, prints and writes; the others follow its
// orders: they say which GPUs they see, plan the study that they are sent, run their ranks. Whatever ends one process
// ends all, with one line that names it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "validate/device/device_executor.h"
#include "validate/device/job_run.h"
#include "validate/device/process_job.h"
#include "validate/report/prepared_run.h"
#include "validate/report/reduction.h"

namespace longhaul {

// The devices of the ranks of this process, and what joins them with the others'.
struct JobTeam {
  std::vector<std::unique_ptr<Device>> owned;
  std::unique_ptr<Transport> transport;  // goes before the devices
  std::vector<Device*> devices;          // by rank; nullptr: of another process
};

// Process 0's side.
class JobLead {
 public:
  explicit JobLead(ProcessJob& job) : job_(job) {}

  ProcessJob& job() const { return job_; }
  // Whether the others are in a run: then an error here can only end them (ProcessJob::abort).
  bool busy() const { return busy_; }

  // What all GPUs of the job give: ranks at most, the least free memory. LimitError: a process has no GPU that it may
  // take, GPUs differ. Learns which GPUs every process takes.
  MachineAtHand gpus_at_hand(std::string& hardware_name);
  int first_gpu() const { return shares_.front().front(); }

  // Lets every process plan the study and make its devices, then joins them. LimitError, with the process's name, if
  // one cannot, or if the hosts of the job are not the nodes of the study; all others are then free again.
  JobTeam make_team(const PreparedRun& prepared, const std::string& file, bool on_host);
  // run_on_devices of all processes together.
  RunRecord run(const DevicePlan& plan, JobTeam& team, const ExecutorOptions& options, const StepWish& wish,
                const std::function<void(StepOutcome, RunRecord&)>& on_step);

  // The orderly end of all; later calls do nothing.
  void leave(int code);

 private:
  std::string ask(int process, const std::string& order);

  ProcessJob& job_;
  std::vector<std::vector<int>> shares_;  // by process: GPUs that it takes
  std::vector<std::string> hosts_;        // by process
  bool busy_ = false, left_ = false;
};

// What process 0 does, given its side of the job, as one process would: the exit code of all.
using LeadJob = std::function<int(JobLead&)>;
// Runs `lead` on process 0 and follows its orders elsewhere, to the common end.
int run_in_job(ProcessJob& job, const LeadJob& lead);

}  // namespace longhaul
