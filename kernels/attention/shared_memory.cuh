// Shared memory as the instructions address it, and matrices of it as warps load them. Needs sm_75.
#pragma once

#include <cstdint>

namespace longhaul {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// Four matrices of 8 x 8 bf16 for the warp: lane l names row l % 8 of matrix l / 8 (16 bytes, aligned) and receives of
// each matrix columns 2 (l % 4) + {0, 1} of row l / 4: the A operand of mma and wgmma, if the matrices are its upper
// and lower eight rows of eight columns, then of the next eight.
__device__ inline void load_matrices(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}
// Each matrix transposed.
__device__ inline void load_transposed(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}

}  // namespace longhaul
