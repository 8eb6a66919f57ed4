#include <fmt/format.h>

#include <cstdlib>

#include "sim/core/error.h"
#include "validate/device/process_job.h"
#include "validate/gpu/calibrate/module_file.h"

namespace longhaul {
namespace {

const ModuleFile& mpi_module() {
  static const ModuleFile module{
      "longhaul-mpi.so", "validate/device", LONGHAUL_MPI_MISSING, "this build runs in one process", "", "MPI"};
  return module;
}

const char* variable(const char* name) { return std::getenv(name); }

}  // namespace

std::unique_ptr<ProcessJob> open_process_job() {
  const std::optional<LaunchedProcess> launched = launched_process(variable);
  if (!launched) return nullptr;
  const ModuleFile& module = mpi_module();
  if (!module.missing.empty()) {
    throw LimitError(fmt::format(
        "{} of {} processes was started, but this longhaul was built without {}; install it (libopenmpi-dev), then: "
        "meson setup --reconfigure build && ninja -C build; or start one process",
        launched->process, launched->processes, module.missing));
  }
  static const std::shared_ptr<void> library = open_module(module);
  std::unique_ptr<ProcessJob> job(
      reinterpret_cast<MakeProcessJob>(module_entry(module, library.get(), "longhaul_process_job"))());
  if (job->processes() == launched->processes) return job;
  throw LimitError(fmt::format(
      "the launcher started {} processes, MPI sees {}: they do not fit together; with srun, srun --mpi=list names what "
      "there is (--mpi=pmix for OpenMPI), or take mpirun",
      launched->processes, job->processes()));
}

}  // namespace longhaul
