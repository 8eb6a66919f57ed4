#include "validate/cpu/attention_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace longhaul {
namespace {

#define LH_INLINE inline __attribute__((always_inline))
// One build serves every x86-64 machine; the loader picks the widest copy that the processor has.
#define LH_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))

typedef double Lanes __attribute__((vector_size(8 * kLanes)));
typedef std::int64_t IntLanes __attribute__((vector_size(8 * kLanes)));

LH_INLINE void read(Lanes& lanes, const double* from) { std::memcpy(&lanes, from, sizeof(lanes)); }
LH_INLINE void write(double* to, const Lanes& lanes) { std::memcpy(to, &lanes, sizeof(lanes)); }

LH_INLINE double sum_of(const Lanes& lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

// exp(x) = 2^n exp(r), |r| <= ln2 / 2, with the Taylor sum of exp(r) to r^13 (remainder 4e-18). x is clamped at -700,
// where exp is 1e-304: nothing beside 1. libm's exp has no vector form that is portable between compilers.
LH_INLINE void exp_in_place(Lanes& x) {
  constexpr double kLog2E = 1.4426950408889634, kLn2High = 0x1.62e42fee00000p-1, kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr double kShift = 0x1.8p52;  // adding it rounds to an integer, which then stands in the low bits
  x = x < -700.0 ? Lanes{} - 700.0 : x;
  const Lanes shifted = x * kLog2E + kShift;
  const Lanes n = shifted - kShift;
  const Lanes r = (x - n * kLn2High) - n * kLn2Low;
  Lanes y = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0;
  y = y * r + 1.0 / 39916800.0;
  y = y * r + 1.0 / 3628800.0;
  y = y * r + 1.0 / 362880.0;
  y = y * r + 1.0 / 40320.0;
  y = y * r + 1.0 / 5040.0;
  y = y * r + 1.0 / 720.0;
  y = y * r + 1.0 / 120.0;
  y = y * r + 1.0 / 24.0;
  y = y * r + 1.0 / 6.0;
  y = y * r + 0.5;
  y = y * r + 1.0;
  y = y * r + 1.0;
  IntLanes bits, exponent;
  std::memcpy(&bits, &y, sizeof(bits));
  std::memcpy(&exponent, &shifted, sizeof(exponent));
  bits += exponent << 52;
  std::memcpy(&x, &bits, sizeof(x));
}

// All ones in the lanes j .. j+7 that lie in the range.
LH_INLINE void lanes_in(IntLanes& mask, std::int64_t j, const KeyRange& range) {
  const IntLanes index = IntLanes{0, 1, 2, 3, 4, 5, 6, 7} + j;
  mask = (index >= range.begin) & (index < range.end);
}

LH_INLINE void score(Lanes& s, const double* q, const double* k, std::int64_t j, std::int64_t keys, std::int64_t dim) {
  Lanes column;
  read(column, k + j);
  s = column * q[0];
  for (std::int64_t c = 1; c < dim; ++c) {
    read(column, k + c * keys + j);
    s += column * q[c];
  }
}

template <std::int64_t kDim>
LH_INLINE void forward_row(const HeadForward& head, std::int64_t i, std::int64_t first, std::int64_t last) {
  const std::int64_t dim = kDim > 0 ? kDim : head.dim;
  const KeyRange range = head.visible[i];
  const double* q = head.q + i * dim;
  constexpr double kLowest = -std::numeric_limits<double>::infinity();
  Lanes top = Lanes{} + kLowest;
  for (std::int64_t j = first; j < last; j += kLanes) {
    Lanes s;
    score(s, q, head.k, j, head.keys, dim);
    IntLanes mask;
    lanes_in(mask, j, range);
    s = mask ? s : Lanes{} + kLowest;
    top = top > s ? top : s;
    write(head.scores + j, s);
  }
  double new_top = head.top[i];
  for (std::int64_t lane = 0; lane < kLanes; ++lane) new_top = std::max(new_top, top[lane]);
  const double rescale = std::exp(head.top[i] - new_top);
  double* o = head.o + i * dim;
  for (std::int64_t c = 0; c < dim; ++c) o[c] *= rescale;

  Lanes sum = {};
  for (std::int64_t j = first; j < last; j += kLanes) {
    Lanes p;
    read(p, head.scores + j);
    const IntLanes seen = p > kLowest;
    p -= new_top;
    exp_in_place(p);
    p = seen ? p : Lanes{};
    sum += p;
    write(head.scores + j, p);
  }
  for (std::int64_t c = 0; c < dim; ++c) {
    Lanes part = {};
    for (std::int64_t j = first; j < last; j += kLanes) {
      Lanes p, value;
      read(p, head.scores + j);
      read(value, head.v + c * head.keys + j);
      part += p * value;
    }
    o[c] += sum_of(part);
  }
  head.top[i] = new_top;
  head.sum[i] = head.sum[i] * rescale + sum_of(sum);
}

template <std::int64_t kDim>
LH_INLINE void forward_rows(const HeadForward& head) {
  for (std::int64_t i = 0; i < head.queries; ++i) {
    const KeyRange range = head.visible[i];
    if (range.begin >= range.end) continue;
    forward_row<kDim>(head, i, range.begin / kLanes * kLanes, padded_keys(range.end));
  }
}

template <std::int64_t kDim, std::size_t kSlots>
LH_INLINE void backward_row(const HeadBackward& head, std::int64_t i) {
  const std::int64_t dim = kDim > 0 ? kDim : head.dim;
  const KeyRange range = head.visible[i];
  const double* q = head.q + i * dim;
  const double* d_o = head.d_o + i * dim;
  Lanes d_q[kSlots];
  for (std::int64_t c = 0; c < dim; ++c) d_q[c] = Lanes{};
  const std::int64_t last = padded_keys(range.end);
  for (std::int64_t j = range.begin / kLanes * kLanes; j < last; j += kLanes) {
    Lanes p, d_p;
    score(p, q, head.k, j, head.keys, dim);
    score(d_p, d_o, head.v, j, head.keys, dim);
    p -= head.lse[i];
    IntLanes mask;
    lanes_in(mask, j, range);
    p = mask ? p : Lanes{} - 700.0;  // a masked score may pass the range of exp
    exp_in_place(p);
    p = mask ? p : Lanes{};
    const Lanes d_s = p * (d_p - head.delta[i]);
    for (std::int64_t c = 0; c < dim; ++c) {
      Lanes column;
      const std::int64_t at = c * head.keys + j;
      read(column, head.k + at);
      d_q[c] += d_s * column;
      read(column, head.d_k + at);
      column += d_s * q[c];
      write(head.d_k + at, column);
      read(column, head.d_v + at);
      column += p * d_o[c];
      write(head.d_v + at, column);
    }
  }
  for (std::int64_t c = 0; c < dim; ++c) head.d_q[i * dim + c] += sum_of(d_q[c]);
}

template <std::int64_t kDim, std::size_t kSlots>
LH_INLINE void backward_rows(const HeadBackward& head) {
  for (std::int64_t i = 0; i < head.queries; ++i) {
    if (head.visible[i].begin < head.visible[i].end) backward_row<kDim, kSlots>(head, i);
  }
}

}  // namespace

LH_CLONES void head_forward(const HeadForward& head) {
  if (head.dim == 8) return forward_rows<8>(head);
  forward_rows<0>(head);
}

LH_CLONES void head_backward(const HeadBackward& head) {
  if (head.dim == 8) return backward_rows<8, 8>(head);
  backward_rows<0, kMaxHeadDim>(head);
}

LH_CLONES void exp_lanes(const double* x, double* y) {
  Lanes lanes;
  read(lanes, x);
  exp_in_place(lanes);
  write(y, lanes);
}

}  // namespace longhaul
