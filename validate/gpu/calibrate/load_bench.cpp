#include "validate/gpu/calibrate/load_bench.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "sim/core/error.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

// What Meson left out; empty where everything is there.
constexpr const char* kMissing = LONGHAUL_BENCH_MISSING;
constexpr const char* kModule = "longhaul-gpu.so";

// Beside the command, as installed, and where a build folder has it (not where it may lie from an earlier set-up).
std::vector<fs::path> places() {
  std::error_code error;
  const fs::path command = fs::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const fs::path folder = command.parent_path();
  std::vector<fs::path> places = {folder / kModule, folder / "../lib/longhaul" / kModule};
  if (*kMissing == '\0') places.push_back(folder / "../../validate/gpu" / kModule);
  return places;
}

std::string missing_module() {
  if (*kMissing == '\0') {
    return fmt::format("{} is neither beside the longhaul command nor in its build folder: ninja -C build", kModule);
  }
  return fmt::format(
      "this longhaul cannot measure: it was built without {}; where a GPU is, install what is missing (CUDA with "
      "cuBLASLt, cuDNN 9, NCCL), then: meson setup --reconfigure build -Dcuda=enabled && ninja -C build",
      kMissing);
}

std::shared_ptr<void> open_module() {
  std::error_code error;
  for (const fs::path& place : places()) {
    if (!fs::exists(place, error)) continue;
    void* const library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const why = dlerror();
      throw LimitError(
          fmt::format("{} does not load: {}; put the libraries of CUDA, cuDNN and NCCL where the loader looks",
                      place.lexically_normal().string(), why == nullptr ? "no reason given" : why));
    }
    return {library, [](void*) {}};  // never closed: CUDA's own threads run in it until the process ends
  }
  throw LimitError(missing_module());
}

}  // namespace

LoadedBench load_bench(const BenchOptions& options) {
  std::shared_ptr<void> library = open_module();
  const auto make = reinterpret_cast<MakeBench>(dlsym(library.get(), "longhaul_make_bench"));
  if (make == nullptr) throw LimitError(fmt::format("{} is of another version: ninja -C build", kModule));
  return {std::move(library), std::unique_ptr<Bench>(make(options))};
}

}  // namespace longhaul
