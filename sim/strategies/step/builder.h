// Small helpers to fill a Schedule: tensor kinds, slots, roles, and op templates with their waits and lifetimes.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "sim/schedule/schedule.h"

namespace longhaul {

// References and views of a tensor kind, in the words that the segment writers use.
inline TensorRef layer_tensor(TensorKindId kind, std::uint8_t instance = 0, std::int16_t layer_offset = 0) {
  return {kind, layer_offset, true, true, instance, -1};
}
inline TensorRef chunk_tensor(TensorKindId kind, std::uint8_t instance = 0) {
  return {kind, 0, false, true, instance, -1};
}
inline TensorRef layer_weights(TensorKindId kind, std::int16_t layer_offset = 0) {
  return {kind, layer_offset, true, false, 0, -1};
}
inline TensorRef step_tensor(TensorKindId kind) { return {kind, 0, false, false, 0, -1}; }

inline View columns_of(const TensorRef& tensor, Access access, std::int64_t begin, std::int64_t count,
                       RowListSlot rows = kAllRows) {
  return {tensor, access, rows, begin, count, 0, 0};
}
inline View matrix_of(const TensorRef& tensor, Access access, std::int64_t begin, std::int64_t rows,
                      std::int64_t columns) {
  return {tensor, access, kAllRows, 0, columns, begin, rows};
}

class ScheduleBuilder {
 public:
  Schedule schedule;

  TensorKindId tensor(std::string name, RowMapSlot rows, std::int64_t columns, ElementType type,
                      MemoryCategory category);
  TensorKindId flat(std::string name, std::int64_t elements, std::int64_t columns, ElementType type,
                    MemoryCategory category);
  std::int64_t columns(TensorKindId kind) const { return schedule.tensors[static_cast<std::size_t>(kind)].columns; }
  std::int64_t elements(TensorKindId kind) const { return schedule.tensors[static_cast<std::size_t>(kind)].flat_rows; }
  // A view of all rows and columns.
  View whole(const TensorRef& tensor, Access access) const;

  RowMapSlot row_map_slot() { return row_maps_++; }
  RowListSlot row_list_slot() { return row_lists_++; }
  PieceSlot piece_slot() { return pieces_++; }
  ChunkListSlot chunk_list_slot() { return chunk_lists_++; }
  ExchangeSlot exchange_slot() { return exchanges_++; }
  EventSlot event() { return events_++; }
  GroupRole role(std::string name);
  StreamId stream_of(GroupRole role) const { return static_cast<StreamId>(kFirstCommunicationStream + role); }

  SegmentId add_segment(std::string name, std::vector<Op> ops);
  ProgramId add_program(Program program);
  GroupId add_group(std::vector<std::int32_t> members);
  ShapeId add_shape(ShapeSet shape);
  // A shape set with every slot present (empty).
  ShapeSet empty_shape() const;

 private:
  std::int16_t row_maps_ = 0, row_lists_ = 0, pieces_ = 0, chunk_lists_ = 0, exchanges_ = 0;
  std::int8_t events_ = 0;
};

// Ops of one segment. Each call appends a template; the modifiers change the last one.
class SegmentWriter {
 public:
  SegmentWriter(ScheduleBuilder& builder, Pass pass) : builder_(&builder), pass_(pass) {}

  SegmentWriter& gemm(std::string label, View a, View b, View c, bool transpose_a = false, bool transpose_b = false);
  SegmentWriter& elementwise(std::string label, Function function, std::vector<View> operands);
  SegmentWriter& move(std::string label, std::vector<View> operands, Function function = Function::kNone);
  SegmentWriter& optimizer(std::string label, View state, View gradient, View parameters);
  SegmentWriter& merge(std::string label, View o_part, View lse_part, View o, View lse);
  SegmentWriter& attention(std::string label, Op op);  // kind, pass and label are filled in
  SegmentWriter& collective(std::string label, CollectiveKind kind, GroupRole role, std::vector<CollectivePart> parts);

  SegmentWriter& waits(EventSlot slot);
  SegmentWriter& records(EventSlot slot);
  SegmentWriter& acquires(std::initializer_list<TensorRef> tensors);
  SegmentWriter& releases(std::initializer_list<TensorRef> tensors);
  SegmentWriter& releases_if(bool condition, std::initializer_list<TensorRef> tensors);
  SegmentWriter& on(StreamId stream);
  SegmentWriter& guarded(Guard guard);
  SegmentWriter& eager(EagerKernel kernel);
  // `pieces` only for stalls that grow with them; not of an attention op, which has its own.
  SegmentWriter& stalls(HostStall stall, PieceSlot pieces = -1);
  SegmentWriter& pipeline_edge();

  ScheduleBuilder& builder() { return *builder_; }
  Pass pass() const { return pass_; }
  bool empty() const { return ops_.empty(); }
  std::vector<Op> take() { return std::move(ops_); }

 private:
  Op& append(std::string label, OpKind kind);
  ScheduleBuilder* builder_;
  Pass pass_;
  std::vector<Op> ops_;
};

}  // namespace longhaul
