#include "kernels/attention/tensor_map.h"

#include <cuda_runtime_api.h>

#include <string>

#include "kernels/common/check.h"

namespace longhaul {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's function, found at run time: linking against the driver's library would keep programs from starting
// where there is no driver.
Encode encode_function() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  LH_CUDA_CHECK(
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess || function == nullptr) {
    throw_cuda_error(__FILE__, __LINE__, "cudaGetDriverEntryPointByVersion(cuTensorMapEncodeTiled)",
                     "the driver does not have it");
  }
  return reinterpret_cast<Encode>(function);
}

}  // namespace

CUtensorMap tensor_map_of_rows(const void* data, std::int64_t rows, int heads, int head_dim, int box_rows) {
  constexpr cuuint64_t kElement = 2;
  const auto width = static_cast<cuuint64_t>(head_dim);
  const auto head_count = static_cast<cuuint64_t>(heads);
  const cuuint64_t sizes[] = {64, static_cast<cuuint64_t>(rows), width / 64, head_count};
  const cuuint64_t strides[] = {head_count * width * kElement, 64 * kElement, width * kElement};  // of sizes 1 to 3
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(box_rows), static_cast<cuuint32_t>(head_dim / 64), 1};
  const cuuint32_t steps[] = {1, 1, 1, 1};
  static const Encode encode = encode_function();
  CUtensorMap map{};
  const CUresult status = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<void*>(data), sizes, strides,
                                 box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw_cuda_error(__FILE__, __LINE__, "cuTensorMapEncodeTiled", "CUresult " + std::to_string(status));
  }
  return map;
}

}  // namespace longhaul
