#include "validate/device/bound_view.h"

#include <fmt/format.h>

#include <string>

#include "sim/core/invariant.h"
#include "sim/schedule/agreement.h"
#include "validate/cpu/errors.h"

namespace longhaul {
namespace {

constexpr std::int64_t kIndexBytes = sizeof(std::int32_t);
constexpr std::size_t kConstantGroup = 4;  // int32 a 16 bytes

[[noreturn]] void leaves(const Schedule& schedule, const OpInstance& at, const TensorId& id, const std::string& what) {
  throw ScheduleError(fmt::format("{}: view leaves {}: {}", place(at), tensor_name(schedule, id), what));
}

}  // namespace

std::int64_t ConstantPool::add(const std::vector<std::int32_t>& values) {
  const auto [found, fresh] = offsets_.emplace(values, bytes());
  if (fresh) {
    values_.insert(values_.end(), values.begin(), values.end());
    values_.resize((values_.size() + kConstantGroup - 1) / kConstantGroup * kConstantGroup, 0);
  }
  return found->second;
}

const ArenaTensor& ViewBinder::held(const OpInstance& at, std::int32_t position, const TensorId& id) const {
  const ArenaTensor* tensor = arena_.find(id, position);
  if (tensor == nullptr) {
    throw ScheduleError(fmt::format("{}: uses {}, which is not held", place(at), tensor_name(schedule_, id)));
  }
  return *tensor;
}

const RowMap& ViewBinder::row_map(const OpInstance& at, const View& view, std::int32_t chunk) const {
  const TensorKind& kind = schedule_.tensors[static_cast<std::size_t>(view.tensor.kind)];
  if (kind.rows == kFlat) {
    throw ScheduleError(fmt::format("{}: needs rows with a row map, not the flat {}", place(at), kind.name));
  }
  const std::int32_t of = view.tensor.has_chunk ? chunk : kNoChunk;
  const ShapeSet& shape = of == at.chunk ? *at.shape : schedule_.shape(at.rank, of);
  return *shape.row_maps[static_cast<std::size_t>(kind.rows)];
}

Rows ViewBinder::rows(const OpInstance& at, std::int32_t position, const View& view, std::int32_t chunk) const {
  if (view.tensor.kind < 0) throw ScheduleError(fmt::format("{}: an operand is missing", place(at)));
  const TensorId id = resolve(at, view.tensor, chunk);
  const ArenaTensor& tensor = held(at, position, id);
  const TensorKind& kind = schedule_.tensors[static_cast<std::size_t>(id.kind)];
  const std::int64_t element = element_bytes(kind.type);
  Rows bound;
  bound.base = {MemoryPart::kArena, tensor.offset};
  bound.type = kind.type;
  bound.columns = view.columns;
  if (kind.rows == kFlat) {
    if (view.flat_begin < 0 || (view.flat_begin + view.flat_rows * view.columns) * element > tensor.bytes) {
      leaves(schedule_, at, id, fmt::format("elements {} + {} x {}", view.flat_begin, view.flat_rows, view.columns));
    }
    bound.base.offset += view.flat_begin * element;
    bound.rows = view.flat_rows;
    bound.stride = view.columns;
    return bound;
  }
  if (view.column_begin < 0 || view.column_begin + view.columns > kind.columns) {
    leaves(schedule_, at, id, fmt::format("columns {} + {}", view.column_begin, view.columns));
  }
  bound.base.offset += view.column_begin * element;
  bound.stride = kind.columns;
  const std::int64_t tensor_rows = kind.columns == 0 ? 0 : tensor.bytes / (kind.columns * element);
  bound.rows = tensor_rows;
  if (view.rows == kAllRows) return bound;
  const RowList& list = *at.shape->row_lists[static_cast<std::size_t>(view.rows)];
  for (const RowSpan& span : list.spans) {
    if (span.begin < 0 || span.begin + span.count > tensor_rows) {
      leaves(schedule_, at, id, fmt::format("rows {} + {}", span.begin, span.count));
    }
  }
  bound.rows = list.rows;
  if (list.spans.size() == 1) {
    bound.base.offset += list.spans.front().begin * bound.stride * element;
  } else if (!list.spans.empty()) {
    bound.index = constants_.add(row_numbers(at, view, chunk));
  }
  return bound;
}

Rows ViewBinder::whole(const OpInstance& at, std::int32_t position, const TensorId& id) const {
  const ArenaTensor& tensor = held(at, position, id);
  const TensorKind& kind = schedule_.tensors[static_cast<std::size_t>(id.kind)];
  const std::int64_t rows = tensor.bytes / (kind.columns * element_bytes(kind.type));
  return {{MemoryPart::kArena, tensor.offset}, kind.type, rows, kind.columns, kind.columns, kNoIndex};
}

std::vector<std::int32_t> ViewBinder::row_numbers(const OpInstance& at, const View& view, std::int32_t chunk) const {
  std::vector<std::int32_t> numbers;
  const auto add = [&](std::int64_t begin, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) numbers.push_back(static_cast<std::int32_t>(begin + i));
  };
  if (view.rows == kAllRows) {
    add(0, row_map(at, view, chunk).rows);
  } else {
    for (const RowSpan& span : at.shape->row_lists[static_cast<std::size_t>(view.rows)]->spans) {
      add(span.begin, span.count);
    }
  }
  return numbers;
}

std::vector<RowToken> ViewBinder::tokens(const OpInstance& at, const View& view, std::int32_t chunk) const {
  const std::vector<RowToken> all = row_tokens(row_map(at, view, chunk));
  std::vector<RowToken> tokens;
  for (const std::int32_t row : row_numbers(at, view, chunk)) tokens.push_back(all[static_cast<std::size_t>(row)]);
  return tokens;
}

Rows ViewBinder::slice(const Rows& of, std::int64_t begin, std::int64_t count) {
  LH_ASSERT(begin >= 0 && begin + count <= of.rows, "rows {} + {} of {}", begin, count, of.rows);
  Rows part = of;
  part.rows = count;
  if (of.dense()) {
    part.base.offset += begin * of.stride * element_bytes(of.type);
  } else {
    part.index += begin * kIndexBytes;
  }
  return part;
}

Rows ViewBinder::select(const Rows& of, const std::vector<std::int32_t>& numbers) const {
  bool run = true;
  for (std::size_t i = 1; i < numbers.size() && run; ++i) run = numbers[i] == numbers[i - 1] + 1;
  if (!numbers.empty() && run && numbers.front() >= 0) {
    return slice(of, numbers.front(), static_cast<std::int64_t>(numbers.size()));
  }
  Rows part = of;
  part.rows = static_cast<std::int64_t>(numbers.size());
  if (numbers.empty()) return part;
  std::vector<std::int32_t> absolute = numbers;
  if (!of.dense()) {
    const std::vector<std::int32_t>& pool = constants_.values();
    for (std::int32_t& number : absolute) {
      if (number >= 0) number = pool[static_cast<std::size_t>(of.index / kIndexBytes + number)];
    }
  }
  part.index = constants_.add(absolute);
  return part;
}

Rows ViewBinder::columns(const Rows& of, std::int64_t begin, std::int64_t count) {
  LH_ASSERT(begin >= 0 && begin + count <= of.columns, "columns {} + {} of {}", begin, count, of.columns);
  Rows part = of;
  part.base.offset += begin * element_bytes(of.type);
  part.columns = count;
  return part;
}

}  // namespace longhaul
