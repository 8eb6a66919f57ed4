// Sizes of NCCL's calls, in bytes.
#pragma once

namespace longhaul {

inline constexpr double kKiB = 1024;
inline constexpr double kMiB = 1024 * kKiB;

}  // namespace longhaul
