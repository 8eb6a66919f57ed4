#include "sim/strategies/step/builder.h"

#include "sim/core/invariant.h"

namespace longhaul {

TensorKindId ScheduleBuilder::tensor(std::string name, RowMapSlot rows, std::int64_t columns, ElementType type,
                                     MemoryCategory category) {
  schedule.tensors.push_back({std::move(name), rows, 0, columns, type, category});
  return static_cast<TensorKindId>(schedule.tensors.size() - 1);
}

TensorKindId ScheduleBuilder::flat(std::string name, std::int64_t elements, std::int64_t columns, ElementType type,
                                   MemoryCategory category) {
  schedule.tensors.push_back({std::move(name), kFlat, elements, columns, type, category});
  return static_cast<TensorKindId>(schedule.tensors.size() - 1);
}

View ScheduleBuilder::whole(const TensorRef& tensor, Access access) const {
  const TensorKind& kind = schedule.tensors[static_cast<std::size_t>(tensor.kind)];
  if (kind.rows == kFlat) return matrix_of(tensor, access, 0, kind.flat_rows, kind.columns);
  return columns_of(tensor, access, 0, kind.columns);
}

GroupRole ScheduleBuilder::role(std::string name) {
  schedule.roles.push_back(std::move(name));
  return static_cast<GroupRole>(schedule.roles.size() - 1);
}

SegmentId ScheduleBuilder::add_segment(std::string name, std::vector<Op> ops) {
  schedule.segments.push_back({std::move(name), std::move(ops)});
  return static_cast<SegmentId>(schedule.segments.size() - 1);
}

ProgramId ScheduleBuilder::add_program(Program program) {
  schedule.programs.push_back(std::move(program));
  return static_cast<ProgramId>(schedule.programs.size() - 1);
}

GroupId ScheduleBuilder::add_group(std::vector<std::int32_t> members) {
  schedule.groups.push_back({std::move(members)});
  return static_cast<GroupId>(schedule.groups.size() - 1);
}

ShapeId ScheduleBuilder::add_shape(ShapeSet shape) {
  schedule.shapes.push_back(std::move(shape));
  return static_cast<ShapeId>(schedule.shapes.size() - 1);
}

ShapeSet ScheduleBuilder::empty_shape() const {
  ShapeSet shape;
  shape.row_maps.assign(static_cast<std::size_t>(row_maps_), make_row_map({}));
  shape.row_lists.assign(static_cast<std::size_t>(row_lists_), make_row_list({}));
  shape.pieces.assign(static_cast<std::size_t>(pieces_), make_piece_list({}));
  shape.chunk_lists.resize(static_cast<std::size_t>(chunk_lists_));
  shape.exchanges.resize(static_cast<std::size_t>(exchanges_));
  return shape;
}

Op& SegmentWriter::append(std::string label, OpKind kind) {
  Op op;
  op.kind = kind;
  op.pass = pass_;
  op.label = std::move(label);
  ops_.push_back(std::move(op));
  return ops_.back();
}

SegmentWriter& SegmentWriter::gemm(std::string label, View a, View b, View c, bool transpose_a, bool transpose_b) {
  Op& op = append(std::move(label), OpKind::kGemm);
  op.operands = {a, b, c};
  op.transpose_a = transpose_a;
  op.transpose_b = transpose_b;
  return *this;
}

SegmentWriter& SegmentWriter::elementwise(std::string label, Function function, std::vector<View> operands) {
  Op& op = append(std::move(label), OpKind::kElementwise);
  op.function = function;
  op.operands = std::move(operands);
  return *this;
}

SegmentWriter& SegmentWriter::move(std::string label, std::vector<View> operands, Function function) {
  Op& op = append(std::move(label), OpKind::kMove);
  op.function = function;
  op.operands = std::move(operands);
  return *this;
}

SegmentWriter& SegmentWriter::optimizer(std::string label, View state, View gradient, View parameters) {
  append(std::move(label), OpKind::kOptimizer).operands = {state, gradient, parameters};
  return *this;
}

SegmentWriter& SegmentWriter::merge(std::string label, View o_part, View lse_part, View o, View lse) {
  append(std::move(label), OpKind::kMergePartials).operands = {o_part, lse_part, o, lse};
  return *this;
}

SegmentWriter& SegmentWriter::attention(std::string label, Op op) {
  op.kind = OpKind::kAttention;
  op.pass = pass_;
  op.label = std::move(label);
  ops_.push_back(std::move(op));
  return *this;
}

SegmentWriter& SegmentWriter::collective(std::string label, CollectiveKind kind, GroupRole role,
                                         std::vector<CollectivePart> parts) {
  Op& op = append(std::move(label), OpKind::kCollective);
  op.collective = kind;
  op.role = role;
  op.parts = std::move(parts);
  op.stream = builder_->stream_of(role);
  return *this;
}

SegmentWriter& SegmentWriter::waits(EventSlot slot) {
  ops_.back().waits.push_back(slot);
  return *this;
}

SegmentWriter& SegmentWriter::records(EventSlot slot) {
  LH_ASSERT(ops_.back().record == kNoEvent, "`{}` records two events", ops_.back().label);
  ops_.back().record = slot;
  return *this;
}

SegmentWriter& SegmentWriter::acquires(std::initializer_list<TensorRef> tensors) {
  ops_.back().acquire.insert(ops_.back().acquire.end(), tensors);
  return *this;
}

SegmentWriter& SegmentWriter::releases(std::initializer_list<TensorRef> tensors) {
  ops_.back().release.insert(ops_.back().release.end(), tensors);
  return *this;
}

SegmentWriter& SegmentWriter::releases_if(bool condition, std::initializer_list<TensorRef> tensors) {
  return condition ? releases(tensors) : *this;
}

SegmentWriter& SegmentWriter::on(StreamId stream) {
  ops_.back().stream = stream;
  return *this;
}

SegmentWriter& SegmentWriter::pipeline_edge() {
  ops_.back().pipeline_edge = true;
  return *this;
}

SegmentWriter& SegmentWriter::eager(EagerKernel kernel) {
  ops_.back().eager = kernel;
  return *this;
}

SegmentWriter& SegmentWriter::stalls(HostStall stall, PieceSlot pieces) {
  ops_.back().stall = stall;
  if (pieces >= 0) ops_.back().pieces = pieces;
  return *this;
}

SegmentWriter& SegmentWriter::guarded(Guard guard) {
  ops_.back().guard = guard;
  return *this;
}

}  // namespace longhaul
