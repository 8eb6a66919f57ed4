// Attention over a list of pieces in one launch, by our own kernels: every rule of sim/schedule/piece.h, packed
// documents, context-parallel shards, block diffusion.
//
// A query's output is the softmax over all keys that the pieces naming its row let it see (a pair named by two pieces
// counts twice). Tensors are token rows in device memory: q and o q_rows x q_heads x head_dim, k and v k_rows x
// kv_heads x head_dim, bf16, 16-byte aligned; lse q_rows x q_heads, fp32, natural logarithm. Query head h reads key
// head h / (q_heads / kv_heads). Every row of o and lse is written: rows that see no key get 0 and minus infinity. All
// rows of k and v must hold finite numbers, also those that no piece names: a masked value is multiplied by 0.
//
// Two kernels: wgmma and bulk copies (Hopper, head dimension 128), and mma.sync (sm_80 and up, 64, 128 and 256).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "kernels/attention/attention_tile.h"
#include "kernels/attention/backward_version.h"
#include "kernels/attention/forward_version.h"
#include "kernels/attention/tile_plan.h"
#include "kernels/common/bf16.h"
#include "kernels/common/device_buffer.h"

namespace longhaul {

struct AttentionShape {
  int q_heads = 0, kv_heads = 0, head_dim = 0;
};

// A piece list, planned and in device memory; good for any number of launches, heads and layers.
class PiecePlan {
 public:
  PiecePlan(const TilePlan& plan, cudaStream_t stream);

  DeviceTiles tiles() const;
  std::int32_t tile_rows() const { return tile_rows_; }
  std::int32_t q_rows() const { return q_rows_; }
  std::int32_t k_rows() const { return k_rows_; }
  std::int64_t key_tiles() const { return key_tiles_; }

 private:
  std::int32_t tile_rows_, q_rows_, k_rows_;
  std::int64_t key_tiles_;
  DeviceBuffer<AttentionTile> tiles_;
  DeviceBuffer<AttentionSegment> segments_;
  DeviceBuffer<PieceRule> pieces_;
};

// The same for backward launches. The portable kernel also goes over query tiles.
class PieceBackwardPlan {
 public:
  PieceBackwardPlan(const BackwardPlan& plan, const TilePlan& query_plan, cudaStream_t stream);

  DeviceKeyTiles tiles() const;
  DeviceTiles query_tiles() const { return query_plan_.tiles(); }
  std::int32_t q_rows() const { return q_rows_; }
  std::int32_t k_rows() const { return k_rows_; }
  std::int64_t steps() const { return steps_; }                  // of one head: pairs of a key and a query tile
  std::int32_t longest_steps() const { return longest_steps_; }  // of one key tile

 private:
  std::int32_t q_rows_, k_rows_;
  std::int64_t steps_ = 0;
  std::int32_t longest_steps_ = 0;
  DeviceBuffer<KeyTile> tiles_;
  DeviceBuffer<BackwardSegment> segments_;
  DeviceBuffer<QueryTile> q_tiles_;
  DeviceBuffer<PieceRule> pieces_;
  PiecePlan query_plan_;
};

class PieceAttention {
 public:
  enum class Kernel : std::uint8_t { kHopper, kPortable };

  // The fastest kernel that the current device and the shape allow. Throws std::invalid_argument for head counts below
  // 1 or that do not divide, for a head dimension other than 64, 128 or 256, and for a device below sm_80.
  explicit PieceAttention(const AttentionShape& shape);
  // The same with the kernel chosen; std::invalid_argument, with the reason, where it does not run.
  PieceAttention(const AttentionShape& shape, Kernel kernel);

  Kernel kernel() const { return kernel_; }
  // Which versions of the Hopper kernels `forward` and `backward` launch; all compute the same.
  void use(HopperForwardVersion version) { forward_version_ = version; }
  void use(HopperBackwardVersion version) { backward_version_ = version; }

  // Throws std::invalid_argument as plan_tiles does, and where tiles x heads overflow.
  PiecePlan plan(std::span<const Piece> pieces, std::int64_t q_rows, std::int64_t k_rows, cudaStream_t stream) const;

  // Enqueues. The plan is of this object's `plan`; one launch at a time on one stream.
  void forward(const PiecePlan& plan, const Bf16* q, const Bf16* k, const Bf16* v, Bf16* o, float* lse,
               cudaStream_t stream);

  // Throws as `plan` does. Key tiles are joined (tile_plan.h) as `backward_groups` says, or as the caller does; the
  // portable kernel has no such.
  PieceBackwardPlan plan_backward(std::span<const Piece> pieces, std::int64_t q_rows, std::int64_t k_rows,
                                  cudaStream_t stream) const {
    return plan_backward(pieces, q_rows, k_rows, stream, backward_groups());
  }
  PieceBackwardPlan plan_backward(std::span<const Piece> pieces, std::int64_t q_rows, std::int64_t k_rows,
                                  cudaStream_t stream, const BackwardGroups& groups) const;
  BackwardGroups backward_groups() const;

  struct Inputs {
    const Bf16 *q = nullptr, *k = nullptr, *v = nullptr;
    const Bf16* o = nullptr;  // as forward wrote them, or merged with what other key shards gave
    const float* lse = nullptr;
    const Bf16* d_o = nullptr;
  };
  struct Gradients {
    Bf16 *q = nullptr, *k = nullptr, *v = nullptr;
  };
  // Enqueues the gradients of q, k and v; rows that no piece names get 0. The Hopper kernel sums dQ by atomic
  // additions in fp32, so that its last bits differ between runs, in scratch of 4 bytes an element of q that is kept.
  void backward(const PieceBackwardPlan& plan, const Inputs& in, const Gradients& out, cudaStream_t stream);

 private:
  void backward_portable(const PieceBackwardPlan& plan, const Inputs& in, const Gradients& out, cudaStream_t stream);

  AttentionShape shape_;
  Kernel kernel_;
  HopperForwardVersion forward_version_ = kDefaultHopperForward;
  HopperBackwardVersion backward_version_ = kDefaultHopperBackward;
  int multiprocessors_ = 0;
  std::int64_t l2_bytes_ = 0;
  DeviceBuffer<int> counters_;
  DeviceBuffer<float> statistics_{0}, d_q_sum_{0};
};

// Empty, or why the kernel does not run this shape on a device of that compute capability (90 for sm_90).
std::string refusal(PieceAttention::Kernel kernel, const AttentionShape& shape, int capability);

}  // namespace longhaul
