// Several processes that run one schedule together, on one host or many: who they are, how they talk before and after a
// run, how they end together.
//
// Process p has ranks p k .. p k + k - 1, k = ranks / processes. The job carries no data of a step between GPUs (NCCL
// does): ids of communicators, studies, records, and the tensors that process 0 compares. Messages between two
// processes arrive in the order in which they were sent. Implementations: MpiJob (mpi_job.cpp, mpirun or srun), and
// threads of one process in tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

class ProcessJob {
 public:
  virtual ~ProcessJob() = default;
  virtual int process() const = 0;
  virtual int processes() const = 0;
  virtual std::string host() const = 0;  // of this process

  // Blocking, any length. A process that ended makes the launcher end all others.
  virtual void send(int to, std::span<const std::byte> message) = 0;
  virtual std::vector<std::byte> receive(int from) = 0;

  // The orderly end, of all processes together; nothing is sent after it.
  virtual void finish() = 0;
  // Ends all processes at once with that exit code.
  [[noreturn]] virtual void abort(int code) = 0;
};

void send_text(ProcessJob& job, int to, std::string_view text);
std::string receive_text(ProcessJob& job, int from);

// "process 2 of 4 on node07".
std::string process_name(const ProcessJob& job);

// Ranks of one process. LimitError, with what would do, if the processes do not divide the ranks.
std::int32_t ranks_of_each(std::int32_t ranks, int processes);

// What a launcher says of this process in its environment: mpirun of OpenMPI and MPICH, srun.
struct LaunchedProcess {
  int process = 0, processes = 1;
};
// `variable` is getenv. Nothing where no launcher started this process, or it alone.
using Environment = const char* (*)(const char* name);
std::optional<LaunchedProcess> launched_process(Environment variable);

// What process 0 learns of another's GPUs: names that are the same from every process of a host (PCI addresses), in the
// order in which the process sees them.
struct ProcessGpus {
  std::string host;
  std::vector<std::string> gpus;
};
// By process: the GPUs that it takes, as indices into what it sees. Where the processes of a host see the same GPUs,
// they share them out in order, evenly; where the launcher gave each its own, it takes those. LimitError: a host
// without enough GPUs, processes that see some GPUs in common, processes of a host that do not follow each other.
std::vector<std::vector<int>> share_gpus(const std::vector<ProcessGpus>& processes);

// The job that a launcher started this process in, from longhaul-mpi.so; nullptr where there is none or it is alone.
// LimitError: the build has no MPI, or MPI does not see the processes that the launcher started.
std::unique_ptr<ProcessJob> open_process_job();

// What longhaul-mpi.so exports, by the name "longhaul_process_job". One job a process.
using MakeProcessJob = ProcessJob* (*)();

}  // namespace longhaul
