// The files of the source tree that the hygiene rules read: text files under the folders that ship, without build
// folders, results or downloads.
#pragma once

#include <string>
#include <vector>

#include "tests/hygiene/rules.h"

namespace longhaul::hygiene {

// All text files under `root`, sorted by path. Throws std::runtime_error when `root` is not Longhaul's source tree.
std::vector<SourceFile> read_source_tree(const std::string& root);

// read_source_tree of the folder that Meson names in the environment (LONGHAUL_SOURCE_ROOT).
const std::vector<SourceFile>& source_tree();

}  // namespace longhaul::hygiene
