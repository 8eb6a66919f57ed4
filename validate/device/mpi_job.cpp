// What longhaul-mpi.so exports to the command (validate/device/process_job.h): the job of mpirun or srun.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cstdlib>

#include "sim/core/error.h"
#include "validate/device/process_job.h"

namespace longhaul {
namespace {

constexpr std::uint64_t kChunk = std::uint64_t{1} << 30;  // MPI counts in int

// MPI's default error handler ends the job; codes are checked for the case that somebody changed it.
void require_mpi(int status, const char* call) {
  if (status != MPI_SUCCESS) throw LimitError(fmt::format("{} fails with code {}", call, status));
}

class MpiJob : public ProcessJob {
 public:
  MpiJob() {
    require_mpi(MPI_Init(nullptr, nullptr), "MPI_Init");
    require_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &process_), "MPI_Comm_rank");
    require_mpi(MPI_Comm_size(MPI_COMM_WORLD, &processes_), "MPI_Comm_size");
    char name[MPI_MAX_PROCESSOR_NAME] = {};
    int length = 0;
    require_mpi(MPI_Get_processor_name(name, &length), "MPI_Get_processor_name");
    host_.assign(name, static_cast<std::size_t>(length));
  }

  int process() const override { return process_; }
  int processes() const override { return processes_; }
  std::string host() const override { return host_; }

  void send(int to, std::span<const std::byte> message) override {
    const std::uint64_t size = message.size();
    require_mpi(MPI_Send(&size, 1, MPI_UINT64_T, to, 0, MPI_COMM_WORLD), "MPI_Send");
    for (std::uint64_t at = 0; at < size; at += kChunk) {
      const auto count = static_cast<int>(std::min(kChunk, size - at));
      require_mpi(MPI_Send(message.data() + at, count, MPI_BYTE, to, 0, MPI_COMM_WORLD), "MPI_Send");
    }
  }

  std::vector<std::byte> receive(int from) override {
    std::uint64_t size = 0;
    require_mpi(MPI_Recv(&size, 1, MPI_UINT64_T, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "MPI_Recv");
    std::vector<std::byte> message(size);
    for (std::uint64_t at = 0; at < size; at += kChunk) {
      const auto count = static_cast<int>(std::min(kChunk, size - at));
      require_mpi(MPI_Recv(message.data() + at, count, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                  "MPI_Recv");
    }
    return message;
  }

  void finish() override { require_mpi(MPI_Finalize(), "MPI_Finalize"); }

  void abort(int code) override {
    MPI_Abort(MPI_COMM_WORLD, code);
    std::abort();  // MPI_Abort does not return
  }

 private:
  int process_ = 0, processes_ = 1;
  std::string host_;
};

}  // namespace
}  // namespace longhaul

extern "C" __attribute__((visibility("default"))) longhaul::ProcessJob* longhaul_process_job() {
  return new longhaul::MpiJob();
}
