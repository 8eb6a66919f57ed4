// Which elements of which tensors an op touches, for the dry run (checks.h).
//
// A region is a set of rows and a range of columns of a tensor; of a flat tensor, all "rows" and a range of elements.
// Attention reads the rows that its pieces name; exchanges touch the rows of their peers' lists; all else whole views.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <tuple>
#include <vector>

#include "sim/schedule/schedule.h"

namespace longhaul {

// Rows in ascending order, without overlap or adjacency.
using Spans = std::vector<RowSpan>;
Spans sorted_spans(Spans spans);
bool overlap(const Spans& a, const Spans& b);
bool covers(const Spans& outer, const Spans& inner);

struct TensorRegion {
  const Spans* rows = nullptr;  // nullptr: all
  std::int64_t column_begin = 0, column_end = 0;
  bool empty() const { return column_begin >= column_end || (rows != nullptr && rows->empty()); }
};
bool overlap(const TensorRegion& a, const TensorRegion& b);
bool covers(const TensorRegion& outer, const TensorRegion& inner);
// Whether the union of `parts` covers `region`; `rows` is what "all rows" of the tensor means.
bool covered(const TensorRegion& region, const std::vector<TensorRegion>& parts, std::int64_t rows);

struct Use {
  TensorId tensor;
  Access access = Access::kRead;
  TensorRegion region;
};

// Regions of one shape set, made once: the layers of a chunk share them.
class ShapeRegions {
 public:
  explicit ShapeRegions(const ShapeSet& shape) : shape_(&shape) { lists_.resize(shape.row_lists.size()); }

  const Spans* rows(RowListSlot slot);  // nullptr for all rows
  const std::vector<TensorRegion>& exchange(ExchangeSlot slot, RowListSlot rows, bool send);
  // Rows of the query view (operand -1) or of a key view that the pieces name.
  const Spans* pieces(PieceSlot slot, int operand, RowListSlot rows);

 private:
  struct Lists {
    Spans spans;
    bool made = false;
  };
  void place(RowListSlot rows, const RowSpan& of_view, Spans& out) const;

  const ShapeSet* shape_;
  std::deque<Lists> lists_;
  std::deque<Spans> owned_;  // of exchanges
  std::map<std::tuple<ExchangeSlot, RowListSlot, bool>, std::vector<TensorRegion>> exchanges_;
  std::map<std::tuple<PieceSlot, int, RowListSlot>, Spans> pieces_;
};

// Appends what the op touches; operands that the op lacks are left out.
void list_uses(const Schedule& schedule, const OpInstance& at, ShapeRegions* shape, std::vector<Use>& uses);

}  // namespace longhaul
