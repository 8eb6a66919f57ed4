// How a block of the Hopper attention kernels is set up and works: what forward and backward share.
//
// Three warpgroups. One thread of the first copies (the Producer of a kernel); the other two compute (its Consumers)
// and take registers that the first gives back. Blocks stay on their multiprocessors and draw work items from a counter
// in device memory until none is left. Needs sm_90a.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention/hopper_copy.cuh"

namespace longhaul::hopper {

inline constexpr int kConsumers = 2;  // warpgroups
inline constexpr int kConsumerThreads = 128 * kConsumers;
inline constexpr int kConsumerWarps = 4 * kConsumers;
inline constexpr int kThreads = 128 + kConsumerThreads;
inline constexpr int kNoWork = -1;

// Of a thread; a kernel of so many threads starts with 168 for each of three warpgroups.
inline constexpr int kCopyRegisters = 40;
inline constexpr int kComputeRegisters = 232;
static_assert(kCopyRegisters + kConsumers * kComputeRegisters <= 3 * 168);

// Place in a ring of slots and the parity of the present round.
template <int kSlots>
struct Ring {
  int slot = 0;
  std::uint32_t parity = 0;
  __device__ void next() {
    if (++slot == kSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

// All lanes of the warp are done with what the barrier guards.
__device__ inline void release(Barrier& barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(barrier);
}

// counters[0] items were drawn beyond the first of each block; counters[1] blocks ran dry. The last one of them leaves
// both as the next launch needs them.
__device__ inline int draw_item(int* counters) { return static_cast<int>(gridDim.x) + atomicAdd(&counters[0], 1); }
__device__ inline void leave(int* counters) {
  if (atomicAdd(&counters[1], 1) == static_cast<int>(gridDim.x) - 1) {
    counters[0] = 0;
    counters[1] = 0;
  }
}

// Dynamic shared memory as a Shared, whose tiles want 1024-byte alignment, and how much of it to ask for. Aligned by an
// offset: through an integer the compiler would lose sight of what memory this is, and use generic loads and stores.
template <class Shared>
__device__ inline Shared& aligned_shared(std::uint8_t* raw) {
  return *reinterpret_cast<Shared*>(raw + (1024 - shared_address(raw) % 1024) % 1024);
}
template <class Shared>
inline constexpr std::size_t kSharedBytes = sizeof(Shared) + 1024;

// One thread makes barriers and prefetches; then the warpgroups go their ways. `consume` gets 0 or 1.
template <class SetUp, class Produce, class Consume>
__device__ inline void run_block(const SetUp& set_up, const Produce& produce, const Consume& consume) {
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  if (threadIdx.x == 0) set_up();
  __syncthreads();
  if (warpgroup == 0) {
    give_registers_back<kCopyRegisters>();
    if (threadIdx.x == 0) produce();
  } else {
    take_registers<kComputeRegisters>();
    consume(warpgroup - 1);
  }
}

}  // namespace longhaul::hopper
