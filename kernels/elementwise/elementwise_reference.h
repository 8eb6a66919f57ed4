// The memory-bound kernels on the CPU in double precision: what the GPU's results are compared with. Needs no CUDA.
//
// Inputs are the kernels' own (bf16 and fp32 values, exact in double); results are not rounded. Shapes and formulas as
// in the kernels' headers; arrays tight.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/common/bf16.h"

namespace longhaul {

using Doubles = std::vector<double>;

Doubles to_doubles(const std::vector<Bf16>& values);
Doubles to_doubles(const std::vector<float>& values);

struct RmsNormReference {
  Doubles y, r;     // tokens x width, tokens
  Doubles dx, dw;   // tokens x width, width
  Doubles dw_size;  // sum of |terms| of dw: what its rounding errors scale with
};
// x and dy are tokens x width, w has width elements.
RmsNormReference rms_norm_reference(const Doubles& x, const Doubles& w, const Doubles& dy, double epsilon);

struct SwigluReference {
  Doubles y, dgate, dup;
};
SwigluReference swiglu_reference(const Doubles& gate, const Doubles& up, const Doubles& dy);

// x: tokens x heads x head_dim, head_dim = 2 frequencies.
Doubles rope_reference(const Doubles& x, const std::vector<double>& frequencies,
                       const std::vector<std::int32_t>& positions, int heads, bool inverse);

struct CrossEntropyReference {
  Doubles loss, gradient;
};
// A negative target is ignored.
CrossEntropyReference cross_entropy_reference(const Doubles& logits, const std::vector<std::int32_t>& targets,
                                              double scale);

struct AdamwReference {
  Doubles w, m, v;
};
AdamwReference adamw_reference(const Doubles& w, const Doubles& m, const Doubles& v, const Doubles& g,
                               double learning_rate, double beta1, double beta2, double epsilon, double weight_decay,
                               std::int64_t step);

struct MergeReference {
  Doubles o, l;
};
// o and part: rows x head_dim; l and part_l: rows.
MergeReference merge_reference(const Doubles& o, const Doubles& l, const Doubles& part, const Doubles& part_l);

}  // namespace longhaul
