// Data whose sums are exact: what every rank's send buffer holds, so that a result is right or wrong, never close.
//
// Values are integers from -15 to 15: sums over up to 2^19 ranks stay below 2^24 and are exact in fp32 in any order.
// Neighbouring elements, ranks and 1024-element blocks differ, so that a shifted, swapped or stale part shows. Needs no
// CUDA; under nvcc the functions are for the device too.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define LH_HOST_DEVICE __host__ __device__
#else
#define LH_HOST_DEVICE
#endif

namespace longhaul {

// Element `index` of the send buffer of `rank`.
LH_HOST_DEVICE constexpr float pattern_value(int rank, std::int64_t index) {
  const std::int64_t mixed = index * 5 + static_cast<std::int64_t>(rank) * 11 + (index >> 10) * 7;
  return static_cast<float>(mixed % 31 - 15);
}

// The sum of that element over `ranks` ranks.
LH_HOST_DEVICE constexpr float pattern_sum(int ranks, std::int64_t index) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += pattern_value(rank, index);
  return sum;
}

// What an element copied from `source` must be; a negative source stands for the sum over all ranks.
LH_HOST_DEVICE constexpr float pattern_expected(int source, int ranks, std::int64_t index) {
  return source < 0 ? pattern_sum(ranks, index) : pattern_value(source, index);
}

}  // namespace longhaul
