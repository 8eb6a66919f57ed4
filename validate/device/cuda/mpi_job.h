// Several processes that run one schedule together, bootstrapped by MPI (mpirun, or srun under Slurm): who has which
// ranks, how NCCL's ids get around, how records come together.
//
// Process p has ranks p k .. p k + k - 1, k = ranks / processes, on the GPUs of its place among the processes of its
// host. MPI is used before and after a run only. Built where MPI was found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "validate/device/cuda/nccl_transport.h"

namespace longhaul {

class MpiJob {
 public:
  // Initialises MPI; the destructor ends it. One job a process.
  MpiJob(int* argc, char*** argv);
  ~MpiJob();
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;

  int process() const { return process_; }
  int processes() const { return processes_; }
  // Among the processes of this host, in order of their numbers.
  int local_process() const { return local_process_; }

  // Ranks of a process; LimitError if the processes do not divide them.
  std::vector<std::int32_t> ranks_of(int process, std::int32_t ranks) const;
  // The process of the group's first rank makes the id and sends it to those of the others.
  ShareNcclId share_ids(std::int32_t ranks) const;
  // Every process's text, in order, on process 0; nothing elsewhere.
  std::vector<std::string> gather(const std::string& text) const;

 private:
  int process_ = 0, processes_ = 1, local_process_ = 0;
};

}  // namespace longhaul
