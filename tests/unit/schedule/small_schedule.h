// Two ranks with one segment each, to plant faults in: a document of 8 tokens, of which each rank holds half.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/schedule/schedule.h"

namespace longhaul {

// Roles: 0 "pair" (both ranks), 1 "second" (both ranks, another communicator). Row maps: slot 0 this rank's half, slot
// 1 the whole document. Row lists: slot 0 the first two rows, slot 1 the last two of the half.
class SmallSchedule {
 public:
  SmallSchedule() {
    auto batch = std::make_shared<Batch>();
    batch->documents = {8};
    batch->sequences = {{{0}, 8}};
    batch->context_tokens = 8;
    schedule.batch = batch;
    schedule.model = {"tiny", 4, 8, 2, 2, 2, 1, 97, false, false, false};
    schedule.roles = {"pair", "second"};
    schedule.groups = {{{0, 1}}, {{0, 1}}};
    for (std::int32_t rank = 0; rank < 2; ++rank) {
      ShapeSet shape;
      shape.row_maps = {make_row_map({{0, TokenView::kClean, rank * 4, 4}}),
                        make_row_map({{0, TokenView::kClean, 0, 8}})};
      shape.row_lists = {make_row_list({{0, 2}}), make_row_list({{2, 2}})};
      schedule.shapes.push_back(shape);
      schedule.segments.push_back({"rank" + std::to_string(rank), {}});
      Program program;
      Block block;
      block.segment = static_cast<SegmentId>(rank);
      program.blocks.push_back(block);
      schedule.programs.push_back(program);
      RankInfo info;
      info.program = rank;
      info.groups = {0, 1};
      info.shapes = {rank};
      schedule.ranks.push_back(info);
    }
  }

  TensorKindId tensor(const char* name, RowMapSlot rows, std::int64_t columns) {
    schedule.tensors.push_back({name, rows, 0, columns, ElementType::kBf16, MemoryCategory::kActivations});
    return static_cast<TensorKindId>(schedule.tensors.size() - 1);
  }
  static TensorRef ref(TensorKindId kind) { return {kind, 0, true, true, 0, -1}; }
  View view(TensorKindId kind, Access access, RowListSlot rows = kAllRows) const {
    return {ref(kind), access, rows, 0, schedule.tensors[static_cast<std::size_t>(kind)].columns, 0, 0};
  }
  Op& add(int rank, Op op) {
    std::vector<Op>& ops = schedule.segments[static_cast<std::size_t>(rank)].ops;
    ops.push_back(std::move(op));
    return ops.back();
  }
  // Writes a view; acquires nothing.
  Op& write(int rank, const char* label, TensorKindId kind, RowListSlot rows = kAllRows) {
    Op op;
    op.label = label;
    op.function = Function::kZero;
    op.operands = {view(kind, Access::kWrite, rows)};
    return add(rank, op);
  }
  // Reads `from`, writes `to`.
  Op& copy(int rank, const char* label, TensorKindId from, TensorKindId to, RowListSlot rows = kAllRows) {
    Op op;
    op.label = label;
    op.function = Function::kCast;
    op.operands = {view(from, Access::kRead, rows), view(to, Access::kWrite, rows)};
    return add(rank, op);
  }
  Op& all_reduce(int rank, const char* label, TensorKindId kind, GroupRole role = 0) {
    Op op;
    op.label = label;
    op.kind = OpKind::kCollective;
    op.collective = CollectiveKind::kAllReduce;
    op.role = role;
    op.stream = static_cast<StreamId>(kFirstCommunicationStream + role);
    op.parts = {{View{}, view(kind, Access::kAccumulate), -1}};
    return add(rank, op);
  }

  Schedule schedule;
};

}  // namespace longhaul
