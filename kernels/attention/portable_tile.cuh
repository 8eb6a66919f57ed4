// Tiles of 64 rows in shared memory and mma.sync, for the kernels that run on sm_80 and up.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/attention/shared_memory.cuh"

namespace longhaul::portable {

constexpr int kTileRows = 64;
constexpr int kTileThreads = 128;  // four warps, 16 rows each
constexpr int kPad = 8;            // bf16 a row: neighbouring rows start 16 bytes further on in the banks

// Rows first .. first+63 of one head into shared memory; rows at or past `rows` become zeros.
template <int kDim>
__device__ inline void copy_rows(__nv_bfloat16* to, const __nv_bfloat16* from, int first, int rows, int heads,
                                 int head) {
  constexpr int kUnits = kDim / 8;  // of 16 bytes
  for (int i = static_cast<int>(threadIdx.x); i < kTileRows * kUnits; i += kTileThreads) {
    const int row = i / kUnits;
    const int unit = i % kUnits;
    const bool inside = first + row < rows;
    const std::int64_t place = (static_cast<std::int64_t>(inside ? first + row : 0) * heads + head) * kDim + unit * 8;
    const int bytes = inside ? 16 : 0;  // of the source; the rest of the 16 is zeroed
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(to + row * (kDim + kPad) + unit * 8)),
        "l"(from + place), "r"(bytes)
        : "memory");
  }
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}
template <int kPending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

// d[16 x 8] += a[16 x 16] b[16 x 8].
__device__ inline void multiply(float* d, const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace longhaul::portable
