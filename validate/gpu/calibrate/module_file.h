// Modules that `longhaul` loads when it needs them: the command itself starts without CUDA's libraries (0.2 s and 1 GB
// of them) and without MPI's.
#pragma once

#include <memory>
#include <string>

namespace longhaul {

struct ModuleFile {
  std::string name;                            // "longhaul-gpu.so"
  std::string build_folder;                    // where a build has it, from its root: "validate/gpu"
  std::string missing;                         // what Meson left it out for; empty: it was built
  std::string cannot;                          // what is impossible without it: "this longhaul cannot measure"
  std::string install;                         // what to install, in words
  std::string links = "CUDA, cuDNN and NCCL";  // whose libraries the loader must find
};

// Looks beside the command, as installed (../lib/longhaul), and in the command's build folder if it was built. The
// library is never closed: CUDA's own threads run in it until the process ends. Throws LimitError, one line with the
// remedy: it was not built (why, and how to build it), it is nowhere, or it does not load.
std::shared_ptr<void> open_module(const ModuleFile& module);

// What the module exports by this name, as a function pointer. LimitError if it is of another version.
void* module_entry(const ModuleFile& module, void* library, const char* name);

}  // namespace longhaul
