#include <algorithm>

#include "kernels/common/check.h"
#include "kernels/elementwise/arguments.h"
#include "kernels/elementwise/rows.h"

namespace longhaul {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kPartBytes = 16;
constexpr std::int64_t kMaxBlocks = 65536;

// threadIdx.x: parts of a row; threadIdx.y: rows.
template <bool kPack>
__global__ void __launch_bounds__(kThreads)
    move_rows_kernel(const uint4* __restrict__ from, const std::int32_t* __restrict__ index, uint4* __restrict__ to,
                     std::int64_t rows, std::int64_t parts) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; row < rows; row += step) {
    const std::int64_t source = kPack ? index[row] : row;
    const std::int64_t target = kPack ? row : index[row];
    for (std::int64_t i = threadIdx.x; i < parts; i += blockDim.x) to[target * parts + i] = from[source * parts + i];
  }
}

template <bool kPack>
void launch(const void* from, const std::int32_t* index, void* to, std::int64_t rows, std::int64_t row_bytes,
            cudaStream_t stream) {
  const char* name = kPack ? "pack_rows" : "unpack_rows";
  require(rows >= 0, name, "the number of rows", rows, "0 and more");
  require(row_bytes > 0 && row_bytes % kPartBytes == 0, name, "the bytes of a row", row_bytes, "multiples of 16");
  require_groups(from, 0, name, "");
  require_groups(to, 0, name, "");
  if (rows == 0) return;
  const std::int64_t parts = row_bytes / kPartBytes;
  unsigned across = 1;
  while (across < parts && across < kThreads) across *= 2;
  const dim3 block(across, kThreads / across);
  const std::int64_t blocks = std::min((rows + block.y - 1) / block.y, kMaxBlocks);
  move_rows_kernel<kPack><<<static_cast<unsigned>(blocks), block, 0, stream>>>(static_cast<const uint4*>(from), index,
                                                                               static_cast<uint4*>(to), rows, parts);
  LH_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void pack_rows(const void* from, const std::int32_t* index, void* to, std::int64_t rows, std::int64_t row_bytes,
               cudaStream_t stream) {
  launch<true>(from, index, to, rows, row_bytes, stream);
}

void unpack_rows(const void* from, const std::int32_t* index, void* to, std::int64_t rows, std::int64_t row_bytes,
                 cudaStream_t stream) {
  launch<false>(from, index, to, rows, row_bytes, stream);
}

}  // namespace longhaul
