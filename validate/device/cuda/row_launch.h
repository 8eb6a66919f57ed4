// How a call on rows becomes launches: as one row where no operand has gaps, by eights of elements as far as they go.
#pragma once

#include <vector>

#include "validate/device/cuda/row_kernels.h"

namespace longhaul {

inline constexpr int kWideGroup = 8;  // elements that a thread takes at once: 16 bytes of bf16

struct RowLaunch {
  std::vector<DeviceRows> rows;  // the operands, in their order, of the same rows and columns
  int group = 1;                 // 1 or kWideGroup, of which columns are a multiple
};

// Of operands with the same rows and columns; none where there is nothing to do. std::invalid_argument if a launch
// would have 2^32 rows, or groups in a row, or more: kernels count both in 32 bits.
std::vector<RowLaunch> row_launches(std::vector<DeviceRows> operands);

}  // namespace longhaul
