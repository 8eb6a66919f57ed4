// Where these tests read shipped files, and the lists that they compare.
#pragma once

#include <string>
#include <vector>

namespace longhaul {

inline const std::string kRoot = LONGHAUL_SOURCE_ROOT;

using Lines = std::vector<std::string>;
using Names = std::vector<std::string>;

}  // namespace longhaul
