#include "sim/cost/overlap.h"

#include <algorithm>
#include <cmath>

#include "sim/core/invariant.h"
#include "sim/cost/estimate.h"

namespace longhaul {
namespace {

// Of a resource that a kernel needs, others never take more than this: the fair share of two.
constexpr double kMostTaken = 0.5;

// Time over time alone of what keeps 1 - `taken` of its resource, less 1.
double added_without(double taken) {
  const double part = std::min(taken, kMostTaken);
  return part / (1 - part);
}

}  // namespace

OverlapClass overlap_class(KernelKind kernel) {
  switch (kernel) {
    case KernelKind::kGemm:
      return OverlapClass::kGemm;
    case KernelKind::kAttentionForwardDense:
    case KernelKind::kAttentionBackwardDense:
    case KernelKind::kAttentionForwardRagged:
    case KernelKind::kAttentionBackwardRagged:
      return OverlapClass::kAttention;
    case KernelKind::kElementwise:
    case KernelKind::kCopyDeviceToDevice:
      return OverlapClass::kMemory;
    case KernelKind::kCopyHostToDevice:
    case KernelKind::kCopyDeviceToHost:
      return OverlapClass::kHostCopy;
  }
  LH_ASSERT(false, "unknown kernel kind");
}

OverlapModel::OverlapModel(const OverlapConstants& constants, int multiprocessors, BytesPerSecond memory_bandwidth,
                           BytesPerSecond host_link, double scale)
    : constants_(constants),
      multiprocessors_(multiprocessors),
      memory_bytes_per_second_(memory_bandwidth.value),
      host_link_bytes_per_second_(host_link.value),
      scale_(scale) {
  LH_ASSERT(multiprocessors > 0 && memory_bandwidth.value > 0 && host_link.value >= 0 && scale >= 0,
            "{} multiprocessors, {} and {} bytes a second, scale {}", multiprocessors, memory_bandwidth.value,
            host_link.value, scale);
}

double OverlapModel::added_by_channels(double taken, std::int64_t tiles) const {
  if (taken == 0 || tiles == 0) return added_without(taken / multiprocessors_);
  const double left = multiprocessors_ - std::min(taken, kMostTaken * multiprocessors_);
  const auto count = static_cast<double>(tiles);
  if (count <= left) return 0;
  const double late = std::min(count, multiprocessors_) - left;
  const double waves = std::ceil((count - late) / left) + 1;
  return std::min(waves / std::ceil(count / multiprocessors_), 1 / kMostTaken) - 1;
}

double OverlapModel::added_to_compute(const OverlapConstants::Compute& constants, const Beside& beside,
                                      std::int64_t tiles) const {
  double added = beside.gemms + beside.attentions;
  added += beside.memory_kernels * (constants.beside_memory_kernel - 1);
  if (beside.host_copies > 0) added += constants_.compute_beside_host_copy - 1;
  return added + added_by_channels(constants.multiprocessors_per_channel * beside.channels, tiles);
}

double OverlapModel::added_to_memory_kernel(const Beside& beside) const {
  const double added =
      beside.memory_kernels + (beside.gemms + beside.attentions) * (constants_.memory_kernel_beside_compute - 1);
  const double moved = beside.transferred_bytes_per_second * constants_.memory_bytes_per_transferred_byte /
                           constants_.transfer_beside_memory_kernel +
                       beside.host_copies * host_link_bytes_per_second_;
  return added + added_without(moved / memory_bytes_per_second_);
}

double OverlapModel::kernel(OverlapClass kernel, const Beside& beside, std::int64_t tiles) const {
  switch (kernel) {
    case OverlapClass::kGemm:
      return 1 + scale_ * added_to_compute(constants_.gemm, beside, tiles);
    case OverlapClass::kAttention:
      return 1 + scale_ * added_to_compute(constants_.attention, beside, 0);
    case OverlapClass::kMemory:
      return 1 + scale_ * added_to_memory_kernel(beside);
    case OverlapClass::kHostCopy: {
      const bool kernels = beside.gemms + beside.attentions + beside.memory_kernels > 0;
      return kernels ? 1 + scale_ * (constants_.host_copy_beside_compute - 1) : 1;
    }
  }
  LH_ASSERT(false, "unknown class of kernels");
}

double OverlapModel::last_wave(std::int64_t blocks) const {
  const double waves = static_cast<double>(blocks) / multiprocessors_;
  return waves == std::floor(waves) ? 0 : 1 / std::ceil(waves);
}

bool OverlapModel::holds_transfers(OverlapClass kernel) const {
  if (scale_ == 0) return false;
  if (kernel == OverlapClass::kGemm) return constants_.gemm.holds_transfers;
  return kernel == OverlapClass::kAttention && constants_.attention.holds_transfers;
}

double OverlapModel::transfer(OverlapClass beside) const {
  switch (beside) {
    case OverlapClass::kGemm:
      return 1 + scale_ * (constants_.transfer_beside_gemm - 1);
    case OverlapClass::kAttention:
      return 1 + scale_ * (constants_.transfer_beside_attention - 1);
    case OverlapClass::kMemory:
      return 1 + scale_ * (constants_.transfer_beside_memory_kernel - 1);
    case OverlapClass::kHostCopy:
      return 1;
  }
  LH_ASSERT(false, "unknown class of kernels");
}

}  // namespace longhaul
