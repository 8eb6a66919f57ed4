#include "validate/device/cuda/mpi_job.h"

#include <fmt/format.h>
#include <mpi.h>

#include <set>

#include "sim/core/error.h"

namespace longhaul {
namespace {

// MPI's default error handler ends the job; codes are checked for the case that somebody changed it.
void require_mpi(int status, const char* call) {
  if (status != MPI_SUCCESS) throw LimitError(fmt::format("{} fails with code {}", call, status));
}

}  // namespace

MpiJob::MpiJob(int* argc, char*** argv) {
  require_mpi(MPI_Init(argc, argv), "MPI_Init");
  require_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &process_), "MPI_Comm_rank");
  require_mpi(MPI_Comm_size(MPI_COMM_WORLD, &processes_), "MPI_Comm_size");
  MPI_Comm host = MPI_COMM_NULL;
  require_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, process_, MPI_INFO_NULL, &host),
              "MPI_Comm_split_type");
  require_mpi(MPI_Comm_rank(host, &local_process_), "MPI_Comm_rank");
  MPI_Comm_free(&host);
}

MpiJob::~MpiJob() { MPI_Finalize(); }

std::vector<std::int32_t> MpiJob::ranks_of(int process, std::int32_t ranks) const {
  if (ranks % processes_ != 0) {
    throw LimitError(fmt::format("{} processes do not share {} ranks evenly", processes_, ranks));
  }
  const std::int32_t each = ranks / processes_;
  std::vector<std::int32_t> of;
  for (std::int32_t i = 0; i < each; ++i) of.push_back(process * each + i);
  return of;
}

ShareNcclId MpiJob::share_ids(std::int32_t ranks) const {
  const std::int32_t each = static_cast<std::int32_t>(ranks_of(process_, ranks).size());
  const int self = process_;
  return [each, self](GroupId group, const std::vector<std::int32_t>& members) {
    std::set<int> processes;
    for (const std::int32_t rank : members) processes.insert(rank / each);
    const int owner = members.front() / each;
    ncclUniqueId id{};
    if (self != owner) {
      require_mpi(MPI_Recv(id.internal, sizeof(id.internal), MPI_BYTE, owner, group, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                  "MPI_Recv");
      return id;
    }
    id = within_one_process()(group, members);
    for (const int process : processes) {
      if (process == self) continue;
      require_mpi(MPI_Send(id.internal, sizeof(id.internal), MPI_BYTE, process, group, MPI_COMM_WORLD), "MPI_Send");
    }
    return id;
  };
}

std::vector<std::string> MpiJob::gather(const std::string& text) const {
  const int size = static_cast<int>(text.size());
  std::vector<int> sizes(static_cast<std::size_t>(processes_)), offsets;
  require_mpi(MPI_Gather(&size, 1, MPI_INT, sizes.data(), 1, MPI_INT, 0, MPI_COMM_WORLD), "MPI_Gather");
  int total = 0;
  for (const int each : sizes) {
    offsets.push_back(total);
    total += each;
  }
  std::string all(static_cast<std::size_t>(process_ == 0 ? total : 0), ' ');
  require_mpi(
      MPI_Gatherv(text.data(), size, MPI_CHAR, all.data(), sizes.data(), offsets.data(), MPI_CHAR, 0, MPI_COMM_WORLD),
      "MPI_Gatherv");
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < sizes.size() && process_ == 0; ++i) {
    texts.push_back(all.substr(static_cast<std::size_t>(offsets[i]), static_cast<std::size_t>(sizes[i])));
  }
  return texts;
}

}  // namespace longhaul
