#include "validate/device/step_rows.h"

#include <algorithm>
#include <cstring>

namespace longhaul {
namespace {

const RowMap& row_map_of(const Schedule& schedule, const StepTensor& tensor) {
  const TensorKind& kind = schedule.tensors[static_cast<std::size_t>(tensor.id.kind)];
  const ShapeSet& shape = schedule.shape(tensor.rank, tensor.id.chunk);
  return *shape.row_maps[static_cast<std::size_t>(kind.rows)];
}

}  // namespace

RowOrder::RowOrder(const Batch& batch) : noisy(batch.objective.kind == ObjectiveKind::kBlockDiffusion) {
  for (const std::int64_t tokens : batch.documents) {
    document_row.push_back(rows);
    rows += noisy ? 2 * tokens : tokens;
  }
}

std::int64_t RowOrder::row(const Batch& batch, const RowToken& token) const {
  const auto document = static_cast<std::size_t>(token.document);
  const bool second = noisy && token.view == TokenView::kClean;
  return document_row[document] + (second ? batch.documents[document] : 0) + token.position;
}

std::int16_t layer_of(const StepTensor& tensor) {
  if (tensor.id.layer != kNoLayer) return tensor.id.layer;
  return tensor.resident ? kNoLayer : tensor.at.layer;
}

RowView rows_of(const Schedule& schedule, const StepOutcome& outcome, const std::string& kind, std::int16_t layer) {
  const RowOrder order(*schedule.batch);
  RowView view;
  for (const StepTensor& tensor : outcome.tensors) {
    const TensorKind& of = schedule.tensors[static_cast<std::size_t>(tensor.id.kind)];
    if (of.name != kind || tensor.before_op || layer_of(tensor) != layer) continue;
    view.columns = of.columns;
    view.of_row.resize(static_cast<std::size_t>(order.rows), nullptr);
    const auto* first = reinterpret_cast<const Bf16*>(tensor.bytes.data());
    const std::vector<RowToken> tokens = row_tokens(row_map_of(schedule, tensor));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i].document < 0) continue;
      const auto row = static_cast<std::size_t>(order.row(*schedule.batch, tokens[i]));
      view.of_row[row] = first + i * static_cast<std::size_t>(of.columns);
    }
  }
  return view;
}

RowTable<float> gather_lse(const Schedule& schedule, const StepOutcome& outcome, std::int16_t layer) {
  const RowOrder order(*schedule.batch);
  RowTable<float> table(order.rows, schedule.model.q_heads);
  for (const StepTensor& tensor : outcome.tensors) {
    if (!tensor.before_op || layer_of(tensor) != layer) continue;
    const Op& op = *tensor.at.op;
    const std::int64_t columns = schedule.tensors[static_cast<std::size_t>(tensor.id.kind)].columns;
    const std::int64_t first = op.head_role < 0 ? 0 : schedule.member_index(tensor.rank, op.head_role) * op.q_heads;
    const std::vector<RowToken> tokens = row_tokens(row_map_of(schedule, tensor));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i].document < 0) continue;
      const std::int64_t row = order.row(*schedule.batch, tokens[i]);
      std::memcpy(table.row(row) + first, tensor.bytes.data() + i * static_cast<std::size_t>(columns) * sizeof(float),
                  static_cast<std::size_t>(columns) * sizeof(float));
      table.seen[static_cast<std::size_t>(row)] = true;
    }
  }
  return table;
}

}  // namespace longhaul
