// Attention in double precision on the host, for small cases: what FlashAttention-3's results are compared with.
#pragma once

#include <vector>

#include "validate/gpu/flash_attention_3/cases.h"
#include "validate/gpu/flash_attention_3/flash_call.h"

namespace longhaul {

// Laid out as AttentionValues; the gradients are empty of a forward pass.
struct ReferenceValues {
  std::vector<double> o, d_q, d_k, d_v;
};

// Of the inputs in `values` (q, k, v; backward d_o), with the mask of the case.
ReferenceValues reference_attention(const AttentionCase& one, const AttentionValues& values);

// max |x - reference| / max |reference|; a value that is not finite gives infinity. Sizes are equal and not 0
// (std::invalid_argument).
double largest_error(const std::vector<Bf16>& x, const std::vector<double>& reference);

}  // namespace longhaul
