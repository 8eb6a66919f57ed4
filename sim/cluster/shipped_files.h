// Files that ship by name: NAME.json in a folder. Shared by the device and topology readers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.h"

namespace longhaul {

// Names (without ".json") of the files in `folder`, sorted; schemas are left out. Empty if there is no such folder.
std::vector<std::string> shipped_names(const std::string& folder);

// A path rather than a shipped name: it holds a '/' or ends in ".json".
bool is_path(const std::string& name_or_path);

// The file that a name or path stands for. `kind` ("topology") is for the message; `file` and `path` say where the name
// was written.
Expected<std::string> find_shipped(std::string_view kind, const std::string& name_or_path, const std::string& folder,
                                   const std::string& file, const std::string& path);

}  // namespace longhaul
