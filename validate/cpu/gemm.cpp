// C = op(A) x op(B), written or accumulated.
#include <fmt/format.h>

#include "validate/cpu/ops.h"

namespace longhaul {
namespace {

template <class A, class B>
Matrix product(const A& a, bool transpose_a, const B& b, bool transpose_b) {
  if (transpose_a) return transpose_b ? Matrix(a.transpose() * b.transpose()) : Matrix(a.transpose() * b);
  return transpose_b ? Matrix(a * b.transpose()) : Matrix(a * b);
}

}  // namespace

void run_gemm(Machine& machine, const OpInstance& at) {
  const Op& op = *at.op;
  gemm_shape(machine.schedule, at);  // asserts that the sizes fit
  const Region a = machine.checked(at, op.operands[0]);
  const Region b = machine.checked(at, op.operands[1]);
  const Region c = machine.checked(at, op.operands[2]);
  if (a.dense() && b.dense()) {
    c.store(product(a.map(), op.transpose_a, b.map(), op.transpose_b));
  } else {
    c.store(product(a.load(), op.transpose_a, b.load(), op.transpose_b));
  }
}

}  // namespace longhaul
