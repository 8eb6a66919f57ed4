#include "kernels/attention/piece_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <stdexcept>
#include <string>

#include "kernels/attention/hopper_backward.h"
#include "kernels/attention/hopper_forward.h"
#include "kernels/attention/portable_backward.h"
#include "kernels/attention/portable_forward.h"
#include "kernels/attention/tensor_map.h"
#include "kernels/common/check.h"

namespace longhaul {
namespace {

// Keys and values of the heads that run together; half of the L2 that an H100 or H200 has (50 to 60 MB).
constexpr std::int64_t kSectionBytes = std::int64_t{32} << 20;

constexpr int kGroupTiles = 4;
// Of one query head: rows and gradients in bf16, the sum of dQ in fp32.
constexpr std::int64_t kQueryTileBytes = std::int64_t{kHopperBackwardRows} * kHopperHeadDim * (2 + 2 + 4);

int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  LH_CUDA_CHECK(cudaGetDevice(&device));
  LH_CUDA_CHECK(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

int device_capability() {
  return 10 * device_attribute(cudaDevAttrComputeCapabilityMajor) + device_attribute(cudaDevAttrComputeCapabilityMinor);
}

PieceAttention::Kernel kernel_for(const AttentionShape& shape, int capability) {
  return refusal(PieceAttention::Kernel::kHopper, shape, capability).empty() ? PieceAttention::Kernel::kHopper
                                                                             : PieceAttention::Kernel::kPortable;
}

int section_heads(const AttentionShape& shape, std::int64_t k_rows) {
  const std::int64_t bytes = std::max<std::int64_t>(1, k_rows) * shape.head_dim * 4;  // keys and values, 2 bytes each
  auto heads = static_cast<int>(std::clamp<std::int64_t>(kSectionBytes / bytes, 1, shape.kv_heads));
  while (shape.kv_heads % heads != 0) --heads;
  return heads * (shape.q_heads / shape.kv_heads);
}

ForwardOutput output_of(const AttentionShape& shape, Bf16* o, float* lse) {
  ForwardOutput out;
  out.o = reinterpret_cast<__nv_bfloat16*>(o);
  out.lse = lse;
  out.q_heads = shape.q_heads;
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
  out.scale = static_cast<float>(scale);
  out.scale_log2 = static_cast<float>(scale * std::numbers::log2e);
  return out;
}

// The fewest key heads that keep all multiprocessors busy for as long as their longest key tile takes: mixed, they let
// blocks end together. All, if they do not suffice.
int last_backward_heads(const PieceBackwardPlan& plan, int kv_heads, int multiprocessors) {
  const std::int64_t wanted = std::int64_t{plan.longest_steps()} * multiprocessors;
  int heads = 1;
  while (heads < kv_heads && heads * plan.steps() < wanted) ++heads;
  return heads;
}

// Work items are counted in 32 bits.
void check_items(std::size_t tiles, int heads) {
  if (tiles > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max() / 2 / heads)) {
    throw std::invalid_argument(
        fmt::format("attention: {} query tiles of {} heads overflow 2^30 work items", tiles, heads));
  }
}

// Grown when needed, never shrunk; waits for the stream before it lets go of memory that its work may still use.
float* scratch(DeviceBuffer<float>& buffer, std::size_t size, cudaStream_t stream) {
  if (buffer.size() < size) {
    LH_CUDA_CHECK(cudaStreamSynchronize(stream));
    buffer = DeviceBuffer<float>(0);
    buffer = DeviceBuffer<float>(size);
  }
  return buffer.data();
}

const __nv_bfloat16* device(const Bf16* pointer) { return reinterpret_cast<const __nv_bfloat16*>(pointer); }
__nv_bfloat16* device(Bf16* pointer) { return reinterpret_cast<__nv_bfloat16*>(pointer); }

}  // namespace

static_assert(sizeof(Bf16) == sizeof(__nv_bfloat16));

PiecePlan::PiecePlan(const TilePlan& plan, cudaStream_t stream)
    : tile_rows_(plan.tile_rows),
      q_rows_(plan.q_rows),
      k_rows_(plan.k_rows),
      key_tiles_(plan.key_tiles()),
      tiles_(plan.tiles.size()),
      segments_(plan.segments.size()),
      pieces_(plan.pieces.size()) {
  tiles_.upload(plan.tiles, stream);
  segments_.upload(plan.segments, stream);
  pieces_.upload(plan.pieces, stream);
}

DeviceTiles PiecePlan::tiles() const {
  return {tiles_.data(), segments_.data(), pieces_.data(), static_cast<std::int32_t>(tiles_.size())};
}

PieceBackwardPlan::PieceBackwardPlan(const BackwardPlan& plan, const TilePlan& query_plan, cudaStream_t stream)
    : q_rows_(plan.q_rows),
      k_rows_(plan.k_rows),
      tiles_(plan.tiles.size()),
      segments_(plan.segments.size()),
      q_tiles_(plan.q_tiles.size()),
      pieces_(plan.pieces.size()),
      query_plan_(query_plan, stream) {
  for (const KeyTile& tile : plan.tiles) {
    steps_ += tile.q_tiles;
    longest_steps_ = std::max(longest_steps_, tile.q_tiles);
  }
  tiles_.upload(plan.tiles, stream);
  segments_.upload(plan.segments, stream);
  q_tiles_.upload(plan.q_tiles, stream);
  pieces_.upload(plan.pieces, stream);
}

DeviceKeyTiles PieceBackwardPlan::tiles() const {
  return {tiles_.data(),
          segments_.data(),
          q_tiles_.data(),
          pieces_.data(),
          static_cast<std::int32_t>(tiles_.size()),
          static_cast<std::int32_t>(q_tiles_.size())};
}

std::string refusal(PieceAttention::Kernel kernel, const AttentionShape& shape, int capability) {
  if (shape.q_heads < 1 || shape.kv_heads < 1 || shape.q_heads % shape.kv_heads != 0) {
    return fmt::format("{} query heads for {} key heads; each key head serves the same number of query heads",
                       shape.q_heads, shape.kv_heads);
  }
  if (kernel == PieceAttention::Kernel::kHopper) {
    if (shape.head_dim != kHopperHeadDim) {
      return fmt::format("head dimension {}; the Hopper kernel has {}", shape.head_dim, kHopperHeadDim);
    }
    return capability == 90 ? "" : fmt::format("the Hopper kernel needs sm_90; this device is sm_{}", capability);
  }
  if (shape.head_dim != 64 && shape.head_dim != 128 && shape.head_dim != 256) {
    return fmt::format("head dimension {}; supported are 64, 128 and 256", shape.head_dim);
  }
  return capability >= 80 ? "" : fmt::format("attention needs sm_80 or later; this device is sm_{}", capability);
}

PieceAttention::PieceAttention(const AttentionShape& shape)
    : PieceAttention(shape, kernel_for(shape, device_capability())) {}

PieceAttention::PieceAttention(const AttentionShape& shape, Kernel kernel)
    : shape_(shape), kernel_(kernel), counters_(2) {
  const std::string why = refusal(kernel, shape, device_capability());
  if (!why.empty()) throw std::invalid_argument("attention: " + why);
  multiprocessors_ = device_attribute(cudaDevAttrMultiProcessorCount);
  l2_bytes_ = device_attribute(cudaDevAttrL2CacheSize);
  LH_CUDA_CHECK(cudaMemset(counters_.data(), 0, counters_.size_bytes()));
}

PiecePlan PieceAttention::plan(std::span<const Piece> pieces, std::int64_t q_rows, std::int64_t k_rows,
                               cudaStream_t stream) const {
  const bool hopper = kernel_ == Kernel::kHopper;
  const TilePlan plan = plan_tiles(pieces, q_rows, k_rows, hopper ? kHopperTileRows : kPortableTileRows,
                                   hopper ? kHopperTileKeys : kPortableTileKeys);
  check_items(plan.tiles.size(), shape_.q_heads);
  return PiecePlan(plan, stream);
}

void PieceAttention::forward(const PiecePlan& plan, const Bf16* q, const Bf16* k, const Bf16* v, Bf16* o, float* lse,
                             cudaStream_t stream) {
  const ForwardOutput out = output_of(shape_, o, lse);
  if (plan.q_rows() == 0) return;
  if (kernel_ == Kernel::kPortable) {
    PortableForwardArgs args;
    args.tiles = plan.tiles();
    args.out = out;
    args.kv_heads = shape_.kv_heads;
    args.q_rows = plan.q_rows();
    args.k_rows = plan.k_rows();
    args.q = device(q);
    args.k = device(k);
    args.v = device(v);
    launch_portable_forward(args, shape_.head_dim, stream);
    return;
  }
  HopperMaps maps{};
  maps.q = tensor_map_of_rows(q, plan.q_rows(), shape_.q_heads, shape_.head_dim, kHopperTileRows);
  if (plan.k_rows() > 0) {
    maps.k = tensor_map_of_rows(k, plan.k_rows(), shape_.kv_heads, shape_.head_dim, kHopperTileKeys);
    maps.v = tensor_map_of_rows(v, plan.k_rows(), shape_.kv_heads, shape_.head_dim, kHopperTileKeys);
  }
  HopperForwardArgs args;
  args.tiles = plan.tiles();
  args.out = out;
  args.heads_a_kv_head = shape_.q_heads / shape_.kv_heads;
  args.section_heads = section_heads(shape_, plan.k_rows());
  args.counters = counters_.data();
  launch_hopper_forward(forward_version_, maps, args, multiprocessors_, stream);
}

BackwardGroups PieceAttention::backward_groups() const {
  BackwardGroups groups;
  groups.tiles = kGroupTiles;
  const std::int64_t query_tile_bytes = shape_.q_heads / shape_.kv_heads * kQueryTileBytes;
  groups.cached_q_tiles = static_cast<std::int32_t>(l2_bytes_ / 2 / query_tile_bytes);
  return groups;
}

PieceBackwardPlan PieceAttention::plan_backward(std::span<const Piece> pieces, std::int64_t q_rows, std::int64_t k_rows,
                                                cudaStream_t stream, const BackwardGroups& groups) const {
  const bool hopper = kernel_ == Kernel::kHopper;
  const std::int32_t rows = hopper ? kHopperBackwardRows : kPortableTileRows;
  const std::int32_t keys = hopper ? kHopperBackwardKeys : kPortableTileKeys;
  const BackwardPlan plan =
      longhaul::plan_backward(pieces, q_rows, k_rows, rows, keys, hopper ? groups : BackwardGroups{});
  check_items(plan.q_tiles.size(), shape_.q_heads);
  check_items(plan.tiles.size(), shape_.kv_heads);
  return PieceBackwardPlan(plan, hopper ? TilePlan{} : plan_tiles(pieces, q_rows, k_rows, rows, keys), stream);
}

void PieceAttention::backward_portable(const PieceBackwardPlan& plan, const Inputs& in, const Gradients& out,
                                       cudaStream_t stream) {
  PortableBackwardArgs args;
  args.query_tiles = plan.query_tiles();
  args.key_tiles = plan.tiles();
  args.q_heads = shape_.q_heads;
  args.kv_heads = shape_.kv_heads;
  args.q_rows = plan.q_rows();
  args.k_rows = plan.k_rows();
  const ForwardOutput scales = output_of(shape_, nullptr, nullptr);
  args.scale = scales.scale;
  args.scale_log2 = scales.scale_log2;
  args.q = device(in.q);
  args.k = device(in.k);
  args.v = device(in.v);
  args.o = device(in.o);
  args.d_o = device(in.d_o);
  args.lse = in.lse;
  args.row_sums =
      scratch(statistics_, static_cast<std::size_t>(plan.q_rows()) * static_cast<std::size_t>(shape_.q_heads), stream);
  args.d_q = device(out.q);
  args.d_k = device(out.k);
  args.d_v = device(out.v);
  launch_portable_backward(args, shape_.head_dim, stream);
}

void PieceAttention::backward(const PieceBackwardPlan& plan, const Inputs& in, const Gradients& out,
                              cudaStream_t stream) {
  if (kernel_ == Kernel::kPortable) return backward_portable(plan, in, out, stream);
  HopperBackwardArgs args;
  args.tiles = plan.tiles();
  args.q_heads = shape_.q_heads;
  args.kv_heads = shape_.kv_heads;
  // Version C was measured with all key heads mixed, the others one head after the other.
  const bool mixed = backward_version_ == HopperBackwardVersion::kC;
  args.last_heads = mixed ? shape_.kv_heads : last_backward_heads(plan, shape_.kv_heads, multiprocessors_);
  const ForwardOutput scales = output_of(shape_, nullptr, nullptr);
  args.scale = scales.scale;
  args.scale_log2 = scales.scale_log2;
  args.o = device(in.o);
  args.d_o = device(in.d_o);
  args.lse = in.lse;
  const auto items = static_cast<std::size_t>(args.tiles.q_tile_count) * static_cast<std::size_t>(shape_.q_heads);
  args.statistics = scratch(statistics_, items * kRowStatistics, stream);
  args.d_q_sum = scratch(d_q_sum_, items * kHopperBackwardRows * kHopperHeadDim, stream);
  args.d_q = device(out.q);
  args.d_k = device(out.k);
  args.d_v = device(out.v);
  args.counters = counters_.data();
  HopperBackwardMaps maps{};
  if (plan.q_rows() > 0) {
    maps.q = tensor_map_of_rows(in.q, plan.q_rows(), shape_.q_heads, shape_.head_dim, kHopperBackwardRows);
    maps.d_o = tensor_map_of_rows(in.d_o, plan.q_rows(), shape_.q_heads, shape_.head_dim, kHopperBackwardRows);
  }
  if (plan.k_rows() > 0) {
    maps.k = tensor_map_of_rows(in.k, plan.k_rows(), shape_.kv_heads, shape_.head_dim, kHopperBackwardKeys);
    maps.v = tensor_map_of_rows(in.v, plan.k_rows(), shape_.kv_heads, shape_.head_dim, kHopperBackwardKeys);
  }
  launch_hopper_backward(backward_version_, maps, args, multiprocessors_, stream);
}

}  // namespace longhaul
