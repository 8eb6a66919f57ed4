#include "validate/gpu/calibrate/module_file.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "sim/core/error.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

// A build folder may hold a module from an earlier set-up: there it counts only if this set-up has it.
std::vector<fs::path> places(const ModuleFile& module) {
  std::error_code error;
  const fs::path command = fs::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const fs::path folder = command.parent_path();
  std::vector<fs::path> places = {folder / module.name, folder / "../lib/longhaul" / module.name};
  if (module.missing.empty()) places.push_back(folder / "../.." / module.build_folder / module.name);
  return places;
}

std::string nowhere(const ModuleFile& module) {
  if (module.missing.empty()) {
    return fmt::format("{} is neither beside the longhaul command nor in its build folder: ninja -C build",
                       module.name);
  }
  return fmt::format(
      "{}: it was built without {}; where a GPU is, install what is missing ({}), then: meson setup --reconfigure "
      "build -Dcuda=enabled && ninja -C build",
      module.cannot, module.missing, module.install);
}

}  // namespace

std::shared_ptr<void> open_module(const ModuleFile& module) {
  std::error_code error;
  for (const fs::path& place : places(module)) {
    if (!fs::exists(place, error)) continue;
    void* const library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const why = dlerror();
      throw LimitError(fmt::format("{} does not load: {}; put the libraries of {} where the loader looks",
                                   place.lexically_normal().string(), why == nullptr ? "no reason given" : why,
                                   module.links));
    }
    return {library, [](void*) {}};
  }
  throw LimitError(nowhere(module));
}

void* module_entry(const ModuleFile& module, void* library, const char* name) {
  void* const entry = dlsym(library, name);
  if (entry == nullptr) throw LimitError(fmt::format("{} is of another version: ninja -C build", module.name));
  return entry;
}

}  // namespace longhaul
