#include "validate/cpu/storage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "sim/core/invariant.h"
#include "validate/cpu/errors.h"

namespace longhaul {

std::vector<RowToken> row_tokens(const RowMap& map) {
  std::vector<RowToken> tokens;
  tokens.reserve(static_cast<std::size_t>(map.rows));
  for (const RowRun& run : map.runs) {
    for (std::int64_t i = 0; i < run.count; ++i) tokens.push_back({run.document, run.view, run.token(i)});
  }
  return tokens;
}

Region::Region(TensorData* tensor, const RowList* rows, const View& view)
    : tensor_(tensor), columns_(view.columns), access_(view.access) {
  if (tensor->row_map == nullptr) {
    rows_ = view.flat_rows;
    stride_ = view.columns;
    base_ = tensor->values.data() + view.flat_begin;
    return;
  }
  stride_ = tensor->columns;
  base_ = tensor->values.data() + view.column_begin;
  if (rows == nullptr) {
    rows_ = tensor->rows;
  } else if (rows->spans.size() <= 1) {
    rows_ = rows->rows;
    first_row_ = rows->spans.empty() ? 0 : rows->spans.front().begin;
    base_ += first_row_ * stride_;
  } else {
    rows_ = rows->rows;
    offsets_.reserve(static_cast<std::size_t>(rows_));
    for (const RowSpan& span : rows->spans) {
      for (std::int64_t i = 0; i < span.count; ++i) offsets_.push_back((span.begin + i) * stride_);
    }
  }
}

std::int64_t Region::tensor_row(std::int64_t i) const {
  return offsets_.empty() ? first_row_ + i : offsets_[static_cast<std::size_t>(i)] / stride_;
}

StridedMatrix Region::map() const {
  LH_ASSERT(dense(), "a view of scattered rows has no single stride");
  return {base_, rows_, columns_, Eigen::OuterStride<>(stride_)};
}

Matrix Region::load() const {
  if (dense()) return map();
  Matrix values(rows_, columns_);
  for (std::int64_t i = 0; i < rows_; ++i) {
    values.row(i) = Eigen::Map<const Eigen::RowVectorXd>(row(i), columns_);
  }
  return values;
}

void Region::store(const Matrix& values) const {
  LH_ASSERT(values.rows() == rows_ && values.cols() == columns_, "{} x {} into a view of {} x {}", values.rows(),
            values.cols(), rows_, columns_);
  LH_ASSERT(access_ != Access::kRead, "a store into a view that is read");
  for (std::int64_t i = 0; i < rows_; ++i) {
    double* target = row(i);
    const double* source = values.data() + i * columns_;
    if (access_ == Access::kWrite) {
      std::copy_n(source, columns_, target);
    } else {
      for (std::int64_t j = 0; j < columns_; ++j) target[j] += source[j];
    }
  }
}

Eigen::Map<Eigen::VectorXd> Region::vector() const {
  LH_ASSERT(tensor_->row_map == nullptr, "a flat operand is expected");
  return {base_, rows_ * columns_};
}

std::pair<std::int64_t, std::int64_t> Region::first_unwritten(std::int64_t begin, std::int64_t count) const {
  for (std::int64_t i = begin; i < begin + count; ++i) {
    const double* values = row(i);
    int unordered = 0;  // without a branch, so that the compiler takes several elements at a time
    for (std::int64_t j = 0; j < columns_; ++j) unordered |= values[j] != values[j] ? 1 : 0;
    if (unordered == 0) continue;
    for (std::int64_t j = 0; j < columns_; ++j) {
      if (std::isnan(values[j])) return {i, j};
    }
  }
  return {-1, -1};
}

TensorData* RankStorage::find(const TensorId& id) {
  const auto found = tensors_.find(id.key());
  return found == tensors_.end() ? nullptr : &found->second;
}

bool RankStorage::add(TensorData tensor) {
  const std::uint64_t key = tensor.id.key();
  return tensors_.emplace(key, std::move(tensor)).second;
}

bool RankStorage::remove(const TensorId& id) { return tensors_.erase(id.key()) == 1; }

Machine::Machine(const Schedule& of) : schedule(of), ranks(of.ranks.size()), loss(of.ranks.size(), 0.0) {
  LH_ASSERT(of.batch != nullptr, "a schedule without a batch");
  counted_tokens = longhaul::counted_tokens(*of.batch);
}

TensorData Machine::make_tensor(int rank, const TensorId& id) const {
  const TensorKind& kind = schedule.tensors[static_cast<std::size_t>(id.kind)];
  TensorData tensor;
  tensor.id = id;
  tensor.rows = tensor_rows(schedule, rank, id);
  tensor.columns = kind.columns;
  if (kind.rows != kFlat) tensor.row_map = schedule.shape(rank, id.chunk).row_maps[static_cast<std::size_t>(kind.rows)];
  const auto elements = static_cast<std::size_t>(tensor.rows * tensor.columns);
  tensor.values.assign(elements, std::numeric_limits<double>::quiet_NaN());
  return tensor;
}

Region Machine::region(const OpInstance& at, const View& view, std::int32_t chunk) {
  if (view.tensor.kind < 0) fail(at, "an operand that the op needs is missing");
  const TensorId id = resolve(at, view.tensor, chunk);
  TensorData* tensor = ranks[static_cast<std::size_t>(at.rank)].find(id);
  if (tensor == nullptr) fail(at, fmt::format("uses {}, which is not held", tensor_name(schedule, id)));
  const auto leaves = [&](const std::string& what) {
    fail(at,
         fmt::format("view leaves {} ({} x {}): {}", tensor_name(schedule, id), tensor->rows, tensor->columns, what));
  };
  if (tensor->row_map == nullptr) {
    const std::int64_t size = tensor->rows * tensor->columns;
    if (view.flat_begin < 0 || view.flat_begin + view.flat_rows * view.columns > size) {
      leaves(fmt::format("elements {} + {} x {}", view.flat_begin, view.flat_rows, view.columns));
    }
    return {tensor, nullptr, view};
  }
  if (view.column_begin < 0 || view.column_begin + view.columns > tensor->columns) {
    leaves(fmt::format("columns {} + {}", view.column_begin, view.columns));
  }
  const RowList* rows = nullptr;
  if (view.rows != kAllRows) {
    rows = at.shape->row_lists[static_cast<std::size_t>(view.rows)].get();
    for (const RowSpan& span : rows->spans) {
      if (span.begin + span.count > tensor->rows) leaves(fmt::format("rows {} + {}", span.begin, span.count));
    }
  }
  return {tensor, rows, view};
}

Region Machine::checked(const OpInstance& at, const View& view) {
  Region found = region(at, view);
  if (view.access != Access::kWrite) require_written(at, found, 0, found.rows());
  return found;
}

void Machine::require_written(const OpInstance& at, const Region& region, std::int64_t begin,
                              std::int64_t count) const {
  const auto [row, column] = region.first_unwritten(begin, count);
  if (row < 0) return;
  fail(at, fmt::format("{} {}, which is unwritten at row {}, column {} of the view",
                       region.access() == Access::kAccumulate ? "accumulates into" : "reads",
                       tensor_name(schedule, region.tensor().id), row, column));
}

void Machine::fail(const OpInstance& at, const std::string& what) const {
  throw ScheduleError(fmt::format("{}: {}", place(at), what));
}

std::vector<RowToken> view_tokens(const Machine& machine, const OpInstance& at, const Region& region) {
  if (region.tensor().row_map == nullptr) machine.fail(at, "needs rows with a row map, not a flat tensor");
  const std::vector<RowToken> all = row_tokens(*region.tensor().row_map);
  std::vector<RowToken> tokens;
  tokens.reserve(static_cast<std::size_t>(region.rows()));
  for (std::int64_t i = 0; i < region.rows(); ++i)
    tokens.push_back(all[static_cast<std::size_t>(region.tensor_row(i))]);
  return tokens;
}

}  // namespace longhaul
