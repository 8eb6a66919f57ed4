// Cross-entropy with gradient where a row is kept in the registers of a cluster of blocks: Hopper alone.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/elementwise/cross_entropy.h"

namespace longhaul {

// Vocabularies up to here; longer rows do not fit the registers of eight blocks.
inline constexpr std::int64_t kMostClusterVocabulary = std::int64_t{8} * 512 * 8 * 8;

// As cross_entropy_with_gradient, whose checks the arguments have passed; 1 <= tokens, 1 <= vocabulary <=
// kMostClusterVocabulary, on a device of compute capability 9.0.
void launch_cross_entropy_cluster(const CrossEntropyShape& shape, __nv_bfloat16* logits, const std::int32_t* targets,
                                  float scale, float* loss, cudaStream_t stream);

}  // namespace longhaul
