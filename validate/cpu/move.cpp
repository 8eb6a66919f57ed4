// Moves: pairs of views, and the column splits that heads need around an exchange.
#include <fmt/format.h>

#include "validate/cpu/ops.h"

namespace longhaul {
namespace {

// Blocks of `width` columns against `columns` columns: how many blocks hold each column.
std::int64_t repeats(const Machine& machine, const OpInstance& at, const Region& narrow, const Region& wide) {
  const std::int64_t rows = wide.rows();
  const std::int64_t blocks = rows == 0 ? 0 : narrow.rows() / rows;
  if (rows == 0 || blocks * rows != narrow.rows() || (blocks * narrow.columns()) % wide.columns() != 0) {
    machine.fail(at, fmt::format("cannot split {} x {} into {} x {}", wide.rows(), wide.columns(), narrow.rows(),
                                 narrow.columns()));
  }
  return blocks * narrow.columns() / wide.columns();
}

void split_columns(Machine& machine, const OpInstance& at) {
  const Region source = machine.checked(at, at.op->operands[0]);
  const Region target = machine.checked(at, at.op->operands[1]);
  const std::int64_t repeat = repeats(machine, at, target, source);
  const Matrix wide = source.load();
  Matrix narrow(target.rows(), target.columns());
  for (std::int64_t j = 0; j * wide.rows() < narrow.rows(); ++j) {
    narrow.middleRows(j * wide.rows(), wide.rows()) = wide.middleCols(j / repeat * narrow.cols(), narrow.cols());
  }
  target.store(narrow);
}

void join_columns(Machine& machine, const OpInstance& at) {
  const Region source = machine.checked(at, at.op->operands[0]);
  const Region target = machine.checked(at, at.op->operands[1]);
  const std::int64_t repeat = repeats(machine, at, source, target);
  const Matrix narrow = source.load();
  Matrix wide = Matrix::Zero(target.rows(), target.columns());
  for (std::int64_t j = 0; j * wide.rows() < narrow.rows(); ++j) {
    wide.middleCols(j / repeat * narrow.cols(), narrow.cols()) += narrow.middleRows(j * wide.rows(), wide.rows());
  }
  target.store(wide);
}

}  // namespace

void run_move(Machine& machine, const OpInstance& at) {
  const Op& op = *at.op;
  if (op.operands.size() % 2 != 0 || op.operands.empty()) machine.fail(at, "a move needs pairs of views");
  if (op.function == Function::kSplitColumns) return split_columns(machine, at);
  if (op.function == Function::kJoinColumns) return join_columns(machine, at);
  for (std::size_t i = 0; i + 1 < op.operands.size(); i += 2) {
    const Region source = machine.checked(at, op.operands[i]);
    const Region target = machine.checked(at, op.operands[i + 1]);
    if (source.rows() != target.rows() || source.columns() != target.columns()) {
      machine.fail(at, fmt::format("moves {} x {} into {} x {}", source.rows(), source.columns(), target.rows(),
                                   target.columns()));
    }
    target.store(source.load());
  }
}

}  // namespace longhaul
