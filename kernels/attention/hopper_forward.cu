// Attention forward on Hopper: wgmma and bulk tensor copies, head dimension 128, bf16 in and out, fp32 log-sum-exp.
//
// A block is three warpgroups. One warp of the first copies query, key and value tiles into shared memory, a ring of
// kStages for keys and one for values; the other two warpgroups each own 64 of the tile's 128 queries. A warpgroup
// starts the scores of key tile j, then the product of the probabilities of tile j - 1 with their values, and does the
// softmax of tile j while the latter runs; the two warpgroups take turns at starting products (named barriers), so that
// one's softmax hides behind the other's products. Blocks stay and draw (tile, head) pairs from a counter, long tiles
// first, the heads of one section of keys and values (sized for the L2) together.
//
// This file is compiled for sm_90a alone; PieceAttention launches nothing of it elsewhere.
//
// Versions, with what each was predicted and measured at: docs/performance-log.md, "Attention forward on Hopper".
#include <cuda_bf16.h>

#include "kernels/attention/hopper_block.cuh"
#include "kernels/attention/hopper_copy.cuh"
#include "kernels/attention/hopper_forward.h"
#include "kernels/attention/shared_memory.cuh"
#include "kernels/attention/softmax_tile.cuh"
#include "kernels/attention/wgmma.cuh"
#include "kernels/common/check.h"

namespace longhaul {
namespace {

using namespace hopper;

constexpr int kDim = kHopperHeadDim;
constexpr int kRows = kHopperTileRows;
constexpr int kKeys = kHopperTileKeys;
constexpr int kStages = 2;
constexpr std::uint32_t kQueryBytes = kRows * kDim * 2;
constexpr std::uint32_t kKeyBytes = kKeys * kDim * 2;
constexpr int kWorkSlots = 2;

struct __align__(1024) Shared {
  std::uint8_t q[kQueryBytes];
  std::uint8_t k[kStages][kKeyBytes];
  std::uint8_t v[kStages][kKeyBytes];
  Barrier q_full, q_empty;
  Barrier k_full[kStages], k_empty[kStages];
  Barrier v_full[kStages], v_empty[kStages];
  Barrier work_full[kWorkSlots], work_empty[kWorkSlots];
  int work[kWorkSlots];
};

constexpr std::uint32_t kQueryHalf = kRows * 128;  // bytes from columns 0-63 to columns 64-127
constexpr std::uint32_t kKeyHalf = kKeys * 128;

struct Work {
  int tile = 0, head = 0;
};

__device__ Work work_of(const HopperForwardArgs& args, int item) {
  const int per_section = args.tiles.tile_count * args.section_heads;
  const int rest = item % per_section;
  return {rest / args.section_heads, item / per_section * args.section_heads + rest % args.section_heads};
}

// ---- the warp that copies

class Producer {
 public:
  __device__ Producer(Shared& shared, const HopperMaps& maps, const HopperForwardArgs& args)
      : shared_(shared), maps_(maps), args_(args) {}

  __device__ void run() {
    const int items = args_.tiles.tile_count * args_.out.q_heads;
    int item = static_cast<int>(blockIdx.x);
    while (item < items) {
      publish(item);
      const int next = draw_item(args_.counters);
      copy(work_of(args_, item));
      item = next;
    }
    publish(kNoWork);
    leave(args_.counters);
  }

 private:
  __device__ void publish(int item) {
    wait(shared_.work_empty[work_.slot], work_.parity ^ 1);
    shared_.work[work_.slot] = item;
    arrive(shared_.work_full[work_.slot]);
    work_.next();
  }

  // Keys one tile ahead of values: that is the order in which they are wanted.
  __device__ void copy(Work work) {
    const AttentionTile& tile = args_.tiles.tiles[work.tile];
    if (tile.key_tiles == 0) return;
    const int kv_head = work.head / args_.heads_a_kv_head;
    wait(shared_.q_empty, q_parity_ ^ 1);
    q_parity_ ^= 1;
    arrive_expecting(shared_.q_full, kQueryBytes);
    copy_tile(shared_.q, maps_.q, shared_.q_full, tile.q_row, work.head);
    int value_row = -1;
    for (int s = tile.segment_begin; s < tile.segment_end; ++s) {
      const AttentionSegment& segment = args_.tiles.segments[s];
      const int first = args_.tiles.pieces[segment.piece].k_row + segment.k_first;
      for (int t = 0; t < segment.key_tiles; ++t) {
        copy_into(shared_.k, shared_.k_full, shared_.k_empty, keys_, maps_.k, first + t * kKeys, kv_head);
        if (value_row >= 0) {
          copy_into(shared_.v, shared_.v_full, shared_.v_empty, values_, maps_.v, value_row, kv_head);
        }
        value_row = first + t * kKeys;
      }
    }
    copy_into(shared_.v, shared_.v_full, shared_.v_empty, values_, maps_.v, value_row, kv_head);
  }

  __device__ void copy_into(std::uint8_t (&tiles)[kStages][kKeyBytes], Barrier (&full)[kStages],
                            Barrier (&empty)[kStages], Ring<kStages>& ring, const CUtensorMap& map, int row, int head) {
    wait(empty[ring.slot], ring.parity ^ 1);
    arrive_expecting(full[ring.slot], kKeyBytes);
    copy_tile(tiles[ring.slot], map, full[ring.slot], row, head);
    ring.next();
  }

  Shared& shared_;
  const HopperMaps& maps_;
  const HopperForwardArgs& args_;
  Ring<kWorkSlots> work_;
  Ring<kStages> keys_, values_;
  std::uint32_t q_parity_ = 0;
};

// ---- the warpgroups that compute

// The 64 queries of a warpgroup as A operands, one for each 16 columns; `row` is the first of the thread's warp. Read
// where they lie, so that the tile is needed until the last scores, or loaded first.
struct SharedQueries {
  static constexpr bool kTileNeeded = true;
  std::uint64_t rows;

  __device__ SharedQueries(const std::uint8_t* tile, int row) : rows(descriptor_of_rows(tile + row / 64 * 64 * 128)) {}
  __device__ void multiply(float (&s)[kKeys / 2], int step, std::uint64_t k) const {
    multiply_rows(s, advance(rows, step / 4 * kQueryHalf + step % 4 * 32), k, step > 0);
  }
};

struct RegisterQueries {
  static constexpr bool kTileNeeded = false;
  std::uint32_t fragments[kDim / 16][4];

  // 16-byte unit u of row r lies at u ^ (r % 8).
  __device__ RegisterQueries(const std::uint8_t* tile, int row) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    row += lane % 16;
    const std::uint8_t* start = tile + row * 128;
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      const int unit = (step % 4 * 2 + lane / 16) ^ (row % 8);
      load_matrices(fragments[step], start + step / 4 * kQueryHalf + unit * 16);
    }
  }
  __device__ void multiply(float (&s)[kKeys / 2], int step, std::uint64_t k) const {
    multiply_rows(s, fragments[step], k, step > 0);
  }
};

template <class Queries>
__device__ void start_scores(float (&s)[kKeys / 2], const Queries& q, std::uint64_t k) {
  fence_registers(s);
  begin_wgmma();
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    q.multiply(s, step, advance(k, step / 4 * kKeyHalf + step % 4 * 32));  // 32 bytes: 16 bf16 of a row of 64
  }
  commit_wgmma();
}

__device__ void start_output(float (&o)[kDim / 2], std::uint32_t (&p)[kKeys / 16][4], std::uint64_t v) {
  fence_registers(o);
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) fence_registers(p[step]);
  begin_wgmma();
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) add_product(o, p[step], advance(v, step * 16 * 128));
  commit_wgmma();
}

template <class Queries>
class Consumer {
 public:
  __device__ Consumer(Shared& shared, const HopperForwardArgs& args, int warpgroup)
      : shared_(shared), args_(args), warpgroup_(warpgroup) {
    const int thread = static_cast<int>(threadIdx.x) % 128;
    row_ = 64 * warpgroup + 16 * (thread / 32) + thread % 32 / 4;
  }

  __device__ void run() {
    if (warpgroup_ == 1) named_arrive(kTurn, kConsumerThreads);
    for (int item = draw(); item != kNoWork; item = draw()) {
      const Work work = work_of(args_, item);
      const AttentionTile& tile = args_.tiles.tiles[work.tile];
      float o[kDim / 2];
#pragma unroll
      for (float& x : o) x = 0;
      RowState rows[2];
      if (tile.key_tiles > 0) attend(tile, o, rows);
      store_rows(args_.out, tile, row_, work.head, o, rows);
    }
  }

 private:
  static constexpr int kTurn = 1;  // named barriers: kTurn + warpgroup

  __device__ int draw() {
    wait(shared_.work_full[work_.slot], work_.parity);
    const int item = shared_.work[work_.slot];
    release(shared_.work_empty[work_.slot]);
    work_.next();
    return item;
  }
  __device__ void take_turn() { named_sync(kTurn + warpgroup_, kConsumerThreads); }
  __device__ void pass_turn() { named_arrive(kTurn + 1 - warpgroup_, kConsumerThreads); }

  __device__ void attend(const AttentionTile& tile, float (&o)[kDim / 2], RowState (&rows)[2]) {
    KeyWalk walk(args_.tiles, tile, row_);
    float s[kKeys / 2];
    std::uint32_t p[kKeys / 16][4];
    walk.next();
    wait(shared_.q_full, q_parity_);
    q_parity_ ^= 1;
    const Queries q(shared_.q, row_ / 16 * 16);
    wait(shared_.k_full[keys_.slot], keys_.parity);
    take_turn();
    start_scores(s, q, descriptor_of_rows(shared_.k[keys_.slot]));
    pass_turn();
    wait_wgmma<0>();
    fence_registers(s);
    if constexpr (!Queries::kTileNeeded) release(shared_.q_empty);
    release(shared_.k_empty[keys_.slot]);
    keys_.next();
    if (walk.masked()) apply_mask(s, walk);
    softmax_row<0>(s, rows[0], args_.out.scale_log2);
    softmax_row<1>(s, rows[1], args_.out.scale_log2);
    pack_probabilities(s, p);
    for (int j = 1; j < tile.key_tiles; ++j) step(walk, q, s, p, o, rows);
    if constexpr (Queries::kTileNeeded) release(shared_.q_empty);
    wait(shared_.v_full[values_.slot], values_.parity);
    start_output(o, p, descriptor_of_columns(shared_.v[values_.slot], kKeyHalf));
    wait_wgmma<0>();
    fence_registers(o);
    release(shared_.v_empty[values_.slot]);
    values_.next();
  }

  // Scores of the next key tile beside the output of the last one.
  __device__ void step(KeyWalk& walk, const Queries& q, float (&s)[kKeys / 2], std::uint32_t (&p)[kKeys / 16][4],
                       float (&o)[kDim / 2], RowState (&rows)[2]) {
    walk.next();
    wait(shared_.k_full[keys_.slot], keys_.parity);
    take_turn();
    start_scores(s, q, descriptor_of_rows(shared_.k[keys_.slot]));
    wait(shared_.v_full[values_.slot], values_.parity);
    start_output(o, p, descriptor_of_columns(shared_.v[values_.slot], kKeyHalf));
    pass_turn();
    wait_wgmma<1>();
    fence_registers(s);
    release(shared_.k_empty[keys_.slot]);
    keys_.next();
    if (walk.masked()) apply_mask(s, walk);
    const float shrink0 = softmax_row<0>(s, rows[0], args_.out.scale_log2);
    const float shrink1 = softmax_row<1>(s, rows[1], args_.out.scale_log2);
    wait_wgmma<0>();
    fence_registers(o);
    release(shared_.v_empty[values_.slot]);
    values_.next();
    pack_probabilities(s, p);
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j) {
      o[4 * j] *= shrink0;
      o[4 * j + 1] *= shrink0;
      o[4 * j + 2] *= shrink1;
      o[4 * j + 3] *= shrink1;
    }
  }

  Shared& shared_;
  const HopperForwardArgs& args_;
  int warpgroup_;
  int row_ = 0;
  Ring<kWorkSlots> work_;
  Ring<kStages> keys_, values_;
  std::uint32_t q_parity_ = 0;
};

__device__ void make_barriers(Shared& shared) {
  init_barrier(shared.q_full, 1);
  init_barrier(shared.q_empty, kConsumerWarps);
  for (int i = 0; i < kStages; ++i) {
    init_barrier(shared.k_full[i], 1);
    init_barrier(shared.k_empty[i], kConsumerWarps);
    init_barrier(shared.v_full[i], 1);
    init_barrier(shared.v_empty[i], kConsumerWarps);
  }
  for (int i = 0; i < kWorkSlots; ++i) {
    init_barrier(shared.work_full[i], 1);
    init_barrier(shared.work_empty[i], kConsumerWarps);
  }
  fence_barrier_init();
}

template <class Queries>
__global__ void __launch_bounds__(kThreads, 1)
    hopper_forward_kernel(const __grid_constant__ HopperMaps maps, const __grid_constant__ HopperForwardArgs args) {
  extern __shared__ std::uint8_t raw[];
  auto& shared = aligned_shared<Shared>(raw);
  const auto set_up = [&] {
    make_barriers(shared);
    prefetch_map(maps.q);
    prefetch_map(maps.k);
    prefetch_map(maps.v);
  };
  run_block(
      set_up, [&] { Producer(shared, maps, args).run(); },
      [&](int warpgroup) { Consumer<Queries>(shared, args, warpgroup).run(); });
}

template <class Queries>
void launch(const HopperMaps& maps, const HopperForwardArgs& args, int multiprocessors, cudaStream_t stream) {
  const std::int64_t items = static_cast<std::int64_t>(args.tiles.tile_count) * args.out.q_heads;
  if (items == 0) return;
  constexpr std::size_t kBytes = kSharedBytes<Shared>;
  LH_CUDA_CHECK(cudaFuncSetAttribute(hopper_forward_kernel<Queries>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(kBytes)));
  const auto blocks = static_cast<unsigned>(items < multiprocessors ? items : multiprocessors);
  hopper_forward_kernel<Queries><<<blocks, kThreads, kBytes, stream>>>(maps, args);
  LH_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void launch_hopper_forward(HopperForwardVersion version, const HopperMaps& maps, const HopperForwardArgs& args,
                           int multiprocessors, cudaStream_t stream) {
  switch (version) {
    case HopperForwardVersion::kA:
      return launch<SharedQueries>(maps, args, multiprocessors, stream);
    case HopperForwardVersion::kE:
      return launch<RegisterQueries>(maps, args, multiprocessors, stream);
  }
}

}  // namespace longhaul
