// Views of ops bound to a rank's arena: which bytes an operand is, and which token each of its rows holds.
#pragma once

#include <map>
#include <vector>

#include "validate/cpu/storage.h"
#include "validate/device/arena_plan.h"
#include "validate/device/kernel_call.h"

namespace longhaul {

// Lists of int32 that kernels read, each stored once. Offsets are multiples of 16 bytes.
class ConstantPool {
 public:
  // Offset of the list in the segment, bytes.
  std::int64_t add(const std::vector<std::int32_t>& values);
  const std::vector<std::int32_t>& values() const { return values_; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(values_.size() * sizeof(std::int32_t)); }

 private:
  std::vector<std::int32_t> values_;
  std::map<std::vector<std::int32_t>, std::int64_t> offsets_;
};

class ViewBinder {
 public:
  ViewBinder(const Schedule& schedule, const ArenaPlan& arena, ConstantPool& constants)
      : schedule_(schedule), arena_(arena), constants_(constants) {}

  // Throws ScheduleError where the tensor is not held or the view leaves it.
  Rows rows(const OpInstance& at, std::int32_t position, const View& view) const {
    return rows(at, position, view, at.chunk);
  }
  Rows rows(const OpInstance& at, std::int32_t position, const View& view, std::int32_t chunk) const;
  // A whole tensor that is held at `position`.
  Rows whole(const OpInstance& at, std::int32_t position, const TensorId& id) const;
  // Tokens of the rows of a view of rows (not flat), in view order; `chunk` as above.
  std::vector<RowToken> tokens(const OpInstance& at, const View& view, std::int32_t chunk) const;
  // Rows of the tensor that the view lists, in order.
  std::vector<std::int32_t> row_numbers(const OpInstance& at, const View& view, std::int32_t chunk) const;

  // Rows begin .. begin + count - 1 of `of`; rows by number of `of` (constants are added); some of its columns.
  static Rows slice(const Rows& of, std::int64_t begin, std::int64_t count);
  Rows select(const Rows& of, const std::vector<std::int32_t>& numbers) const;
  static Rows columns(const Rows& of, std::int64_t begin, std::int64_t count);

  ConstantPool& constants() const { return constants_; }

 private:
  const ArenaTensor& held(const OpInstance& at, std::int32_t position, const TensorId& id) const;
  const RowMap& row_map(const OpInstance& at, const View& view, std::int32_t chunk) const;

  const Schedule& schedule_;
  const ArenaPlan& arena_;
  ConstantPool& constants_;
};

}  // namespace longhaul
