// Tensor maps of token rows (rows x heads x head_dim, bf16) for Hopper's bulk tensor copies.
//
// A box is `box_rows` rows of one head, all columns, written to shared memory as [head_dim / 64][box_rows][64] with the
// 128-byte swizzle: wgmma's operands.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace longhaul {

// `data` is a device pointer, 16-byte aligned; rows >= 1, heads >= 1, head_dim a multiple of 64, box_rows <= 256.
// Throws CudaError that names cuTensorMapEncodeTiled.
CUtensorMap tensor_map_of_rows(const void* data, std::int64_t rows, int heads, int head_dim, int box_rows);

}  // namespace longhaul
