// Device memory of the virtual ranks, in double precision, and the views of ops into it.
//
// A tensor is filled with NaN when it is acquired, so that a read of what nothing has written shows. Double acquire,
// double release and any use of a tensor that is not held are ScheduleErrors. Element types are ignored: all doubles.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/schedule/agreement.h"
#include "sim/schedule/schedule.h"

namespace longhaul {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using StridedMatrix = Eigen::Map<Matrix, 0, Eigen::OuterStride<>>;

// One tensor as it lies in memory: row-major rows x columns. Flat tensors: elements x 1.
struct TensorData {
  TensorId id;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<double> values;
  RowMapPtr row_map;  // nullptr: flat
};

// The token that a row of a tensor holds; document -1 is padding.
struct RowToken {
  DocumentId document = -1;
  TokenView view = TokenView::kClean;
  std::int64_t position = 0;
};
// By row of the map.
std::vector<RowToken> row_tokens(const RowMap& map);

// A view bound to memory. Rows need not be adjacent: `row(i)` finds each.
class Region {
 public:
  Region() = default;
  Region(TensorData* tensor, const RowList* rows, const View& view);

  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  std::int64_t elements() const { return rows_ * columns_; }
  bool dense() const { return offsets_.empty(); }  // one stride between all rows
  TensorData& tensor() const { return *tensor_; }
  Access access() const { return access_; }
  double* row(std::int64_t i) const {
    return base_ + (offsets_.empty() ? i * stride_ : offsets_[static_cast<std::size_t>(i)]);
  }
  // Row of the tensor behind row i of the view.
  std::int64_t tensor_row(std::int64_t i) const;

  StridedMatrix map() const;  // dense only
  Matrix load() const;
  void store(const Matrix& values) const;  // writes or adds, by access()
  // Elements in view order as one vector: a flat operand whatever its rows and columns.
  Eigen::Map<Eigen::VectorXd> vector() const;  // flat tensors only
  // Row and column of the first NaN in the given rows, {-1, -1} if all is written.
  std::pair<std::int64_t, std::int64_t> first_unwritten(std::int64_t begin, std::int64_t count) const;

 private:
  TensorData* tensor_ = nullptr;
  double* base_ = nullptr;
  std::int64_t rows_ = 0, columns_ = 0, stride_ = 0;
  std::int64_t first_row_ = 0;
  Access access_ = Access::kRead;
  std::vector<std::int64_t> offsets_;
};

// What one rank holds.
class RankStorage {
 public:
  // nullptr if the tensor is not held.
  TensorData* find(const TensorId& id);
  // False if it is held already.
  bool add(TensorData tensor);
  bool remove(const TensorId& id);
  const std::map<std::uint64_t, TensorData>& all() const { return tensors_; }

 private:
  std::map<std::uint64_t, TensorData> tensors_;
};

// All ranks, and the sums that ops add to.
struct Machine {
  const Schedule& schedule;
  std::vector<RankStorage> ranks;
  std::vector<double> loss;         // by rank: sum over its counted tokens / counted tokens of the step
  std::int64_t counted_tokens = 0;  // of the step

  explicit Machine(const Schedule& of);

  TensorData make_tensor(int rank, const TensorId& id) const;  // filled with NaN
  // The view at the place of an op, in the op's chunk or in another one; throws if its tensor is not held or if the
  // view leaves the tensor.
  Region region(const OpInstance& at, const View& view) { return region(at, view, at.chunk); }
  Region region(const OpInstance& at, const View& view, std::int32_t chunk);
  // The same, and for reads and accumulation every element must have been written.
  Region checked(const OpInstance& at, const View& view);
  void require_written(const OpInstance& at, const Region& region, std::int64_t begin, std::int64_t count) const;
  [[noreturn]] void fail(const OpInstance& at, const std::string& what) const;
};

// Tokens of the rows of a view, in view order; fails if it is one of a flat tensor.
std::vector<RowToken> view_tokens(const Machine& machine, const OpInstance& at, const Region& region);

}  // namespace longhaul
