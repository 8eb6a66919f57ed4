// The inner loops of attention for one head of one piece, on packed arrays.
//
// Eight keys at a time in GCC/clang vector types: the arithmetic is the same on every machine, only its instructions
// differ. Keys and values are packed transposed, dim x padded_keys, and padded with zeros to a multiple of kLanes.
#pragma once

#include <cstdint>
#include <vector>

#include "validate/cpu/ops.h"

namespace longhaul {

inline constexpr std::int64_t kLanes = 8;
inline constexpr std::size_t kMaxHeadDim = 256;
constexpr std::int64_t padded_keys(std::int64_t keys) { return (keys + kLanes - 1) / kLanes * kLanes; }

struct HeadForward {
  std::int64_t dim = 0;
  std::int64_t keys = 0;  // padded
  std::int64_t queries = 0;
  const KeyRange* visible = nullptr;  // by query
  const double* q = nullptr;          // queries x dim, times the softmax scale
  const double* k = nullptr;          // dim x keys
  const double* v = nullptr;          // dim x keys
  double* top = nullptr;              // by query: running maximum, -inf at first
  double* sum = nullptr;              // by query: sum of exp(score - top)
  double* o = nullptr;                // queries x dim: sum of exp(score - top) v
  double* scores = nullptr;           // scratch: keys
};
void head_forward(const HeadForward& head);

struct HeadBackward {
  std::int64_t dim = 0;
  std::int64_t keys = 0;  // padded
  std::int64_t queries = 0;
  const KeyRange* visible = nullptr;
  const double* q = nullptr;      // queries x dim, times the softmax scale
  const double* d_o = nullptr;    // queries x dim
  const double* lse = nullptr;    // by query
  const double* delta = nullptr;  // by query: sum of o x d_o
  const double* k = nullptr;      // dim x keys
  const double* v = nullptr;
  double* d_q = nullptr;  // queries x dim, gradient of the scaled q; added to
  double* d_k = nullptr;  // dim x keys; added to
  double* d_v = nullptr;
};
void head_backward(const HeadBackward& head);

// exp of the kernel, for its test: |x| <= 700, relative error below 4e-16.
void exp_lanes(const double* x, double* y);

}  // namespace longhaul
