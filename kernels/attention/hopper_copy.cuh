// Barriers in shared memory, bulk tensor copies, named barriers and register budgets of Hopper, one instruction each.
//
// A tile in shared memory is [columns / 64][rows][64 bf16] with the 128-byte swizzle, as the tensor maps of
// tensor_map.h make the copies write it: 16-byte unit u of row r lies at unit u ^ (r % 8). Needs sm_90a.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/attention/shared_memory.cuh"

namespace longhaul::hopper {

using Barrier = std::uint64_t;

__device__ inline void init_barrier(Barrier& barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(&barrier)), "r"(arrivals));
}
// After the barriers are made, before other threads or the copy engine see them.
__device__ inline void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory"); }

__device__ inline void arrive(Barrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(shared_address(&barrier)) : "memory");
}
// Arrives, and lets the phase end only once `bytes` have been copied in.
__device__ inline void arrive_expecting(Barrier& barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(shared_address(&barrier)), "r"(bytes)
               : "memory");
}
// Until the phase of this parity has ended. A fresh barrier counts as past its phase 1.
__device__ inline void wait(Barrier& barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "retry:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra retry;\n"
      "finished:\n"
      "}\n" ::"r"(shared_address(&barrier)),
      "r"(parity)
      : "memory");
}

// Copies a box of the map, from row `row` of head `head`, all columns, into `tile`; `barrier` counts its bytes. Rows
// past the end arrive as zeros and count.
__device__ inline void copy_tile(void* tile, const CUtensorMap& map, Barrier& barrier, int row, int head) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %3, %5}], "
      "[%2];\n" ::"r"(shared_address(tile)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(0), "r"(row), "r"(head)
      : "memory");
}
// Copies `bytes` (a multiple of 16) as they lie.
__device__ inline void copy_bytes(void* to, const void* from, std::uint32_t bytes, Barrier& barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(&barrier))
               : "memory");
}
// Adds fp32 numbers in shared memory to those in device memory, without waiting.
__device__ inline void add_to_memory(float* to, const float* from, std::uint32_t bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;\n"
      "cp.async.bulk.commit_group;\n" ::"l"(to),
      "r"(shared_address(from)), "r"(bytes)
      : "memory");
}
// Adds four fp32 numbers of this thread to those in device memory, without waiting; `to` is 16-byte aligned.
__device__ inline void add_four_to_memory(float* to, float a, float b, float c, float d) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};\n" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}
// Until what this thread has added before no longer needs its shared memory.
__device__ inline void wait_sources_read() { asm volatile("cp.async.bulk.wait_group.read 0;\n" ::: "memory"); }
// Before the copy engine or wgmma reads what this thread has stored to shared memory.
__device__ inline void fence_shared_stores() { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }

__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];\n" ::"l"(&map) : "memory");
}

// Descriptor of a wgmma operand whose k (columns of the tile) is contiguous: 8 rows of 128 bytes repeat every 1024.
__device__ inline std::uint64_t descriptor_of_rows(const void* tile) {
  const std::uint64_t address = (shared_address(tile) & 0x3FFFFU) >> 4;
  return address | (std::uint64_t{1} << 16) | (std::uint64_t{1024 >> 4} << 32) | (std::uint64_t{1} << 62);
}
// The same where n (columns) is contiguous and k goes along the rows; `bytes_64_columns` from one half to the next.
__device__ inline std::uint64_t descriptor_of_columns(const void* tile, std::uint32_t bytes_64_columns) {
  const std::uint64_t address = (shared_address(tile) & 0x3FFFFU) >> 4;
  return address | (std::uint64_t{bytes_64_columns >> 4} << 16) | (std::uint64_t{1024 >> 4} << 32) |
         (std::uint64_t{1} << 62);
}
// The descriptor `bytes` further on.
__device__ inline std::uint64_t advance(std::uint64_t descriptor, std::uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

// The value, but not for the compiler to know: keeps what is cheap to compute from being kept in registers over a loop.
__device__ inline std::uint64_t computed_again(std::uint64_t value) {
  asm volatile("" : "+l"(value));
  return value;
}
__device__ inline int computed_again(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

// Named barriers of the block, 1 .. 15 (0 is __syncthreads).
__device__ inline void named_sync(int name, int threads) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(name), "r"(threads) : "memory");
}
__device__ inline void named_arrive(int name, int threads) {
  asm volatile("bar.arrive %0, %1;\n" ::"r"(name), "r"(threads) : "memory");
}

// Registers a thread, for the whole warpgroup. What one gives back another takes; together they must not want more than
// the block started with (its threads times the kernel's registers, 168 for 384 threads), or the taking never ends.
template <int kRegisters>
__device__ inline void give_registers_back() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

}  // namespace longhaul::hopper
