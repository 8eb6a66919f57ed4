// Sizes of templates at a place: rows, bytes, matrix shapes.
#include <algorithm>

#include "sim/core/invariant.h"
#include "sim/schedule/schedule.h"

namespace longhaul {

TensorId resolve(const OpInstance& at, const TensorRef& ref) { return resolve(at, ref, at.chunk); }

TensorId resolve(const OpInstance& at, const TensorRef& ref, std::int32_t chunk) {
  TensorId id;
  id.kind = ref.kind;
  id.layer = ref.has_layer ? static_cast<std::int16_t>(at.layer + ref.layer_offset) : kNoLayer;
  id.chunk = ref.has_chunk ? chunk : kNoChunk;
  id.instance = ref.instance;
  return id;
}

void resolve_all(const OpInstance& at, const TensorRef& ref, std::vector<TensorId>& out) {
  if (ref.chunks < 0) {
    out.push_back(resolve(at, ref));
    return;
  }
  for (const std::int32_t chunk : at.shape->chunk_lists[static_cast<std::size_t>(ref.chunks)]) {
    out.push_back(resolve(at, ref, chunk));
  }
}

std::int64_t tensor_rows(const Schedule& schedule, int rank, const TensorId& tensor) {
  const TensorKind& kind = schedule.tensors[static_cast<std::size_t>(tensor.kind)];
  if (kind.rows == kFlat) return kind.flat_rows;
  return schedule.shape(rank, tensor.chunk).row_maps[static_cast<std::size_t>(kind.rows)]->rows;
}

std::int64_t tensor_bytes(const Schedule& schedule, int rank, const TensorId& tensor) {
  const TensorKind& kind = schedule.tensors[static_cast<std::size_t>(tensor.kind)];
  return tensor_rows(schedule, rank, tensor) * kind.columns * element_bytes(kind.type);
}

std::int64_t view_rows(const Schedule& schedule, const OpInstance& at, const View& view) {
  const TensorKind& kind = schedule.tensors[static_cast<std::size_t>(view.tensor.kind)];
  if (kind.rows == kFlat) return view.flat_rows;
  if (view.rows != kAllRows) return at.shape->row_lists[static_cast<std::size_t>(view.rows)]->rows;
  return at.shape->row_maps[static_cast<std::size_t>(kind.rows)]->rows;
}

std::int64_t view_bytes(const Schedule& schedule, const OpInstance& at, const View& view) {
  const TensorKind& kind = schedule.tensors[static_cast<std::size_t>(view.tensor.kind)];
  return view_rows(schedule, at, view) * view.columns * element_bytes(kind.type);
}

std::vector<ExpandedOperand> expand_operands(const OpInstance& at) {
  std::vector<ExpandedOperand> expanded;
  for (const KeyValueOperand& operand : at.op->key_values) {
    if (operand.chunks < 0) {
      expanded.push_back({&operand, at.chunk});
      continue;
    }
    for (const std::int32_t chunk : at.shape->chunk_lists[static_cast<std::size_t>(operand.chunks)]) {
      expanded.push_back({&operand, chunk});
    }
  }
  return expanded;
}

GemmShape gemm_shape(const Schedule& schedule, const OpInstance& at) {
  const Op& op = *at.op;
  LH_ASSERT(op.kind == OpKind::kGemm && op.operands.size() == 3, "`{}` is not a Gemm of three operands", op.label);
  const std::int64_t a_rows = view_rows(schedule, at, op.operands[0]);
  const std::int64_t a_columns = op.operands[0].columns;
  const std::int64_t b_rows = view_rows(schedule, at, op.operands[1]);
  const std::int64_t b_columns = op.operands[1].columns;
  GemmShape shape;
  shape.m = op.transpose_a ? a_columns : a_rows;
  shape.k = op.transpose_a ? a_rows : a_columns;
  shape.n = op.transpose_b ? b_rows : b_columns;
  const std::int64_t b_reduced = op.transpose_b ? b_columns : b_rows;
  LH_ASSERT(shape.k == b_reduced, "`{}`: reduced dimensions {} and {} differ", op.label, shape.k, b_reduced);
  LH_ASSERT(view_rows(schedule, at, op.operands[2]) == shape.m && op.operands[2].columns == shape.n,
            "`{}`: C is {} x {}, not {} x {}", op.label, view_rows(schedule, at, op.operands[2]),
            op.operands[2].columns, shape.m, shape.n);
  return shape;
}

std::int64_t touched_bytes(const Schedule& schedule, const OpInstance& at) {
  std::int64_t bytes = 0;
  for (const View& view : at.op->operands) {
    const bool table = at.op->function == Function::kEmbedding || at.op->function == Function::kEmbeddingBackward;
    const TensorKind& kind = schedule.tensors[static_cast<std::size_t>(view.tensor.kind)];
    if (table && kind.rows == kFlat) continue;  // only the looked-up rows move: counted below
    std::int64_t once = 0;
    if (view.tensor.chunks >= 0) {
      for (const std::int32_t chunk : at.shape->chunk_lists[static_cast<std::size_t>(view.tensor.chunks)]) {
        once += tensor_bytes(schedule, at.rank, resolve(at, view.tensor, chunk));
      }
    } else {
      once = view_bytes(schedule, at, view);
    }
    bytes += view.access == Access::kAccumulate ? 2 * once : once;
  }
  if (at.op->function == Function::kEmbedding) bytes *= 2;          // one table row read for each row written
  if (at.op->function == Function::kEmbeddingBackward) bytes *= 3;  // gradient row read, table row read and written
  return bytes;
}

std::int64_t collective_buffer_bytes(const Schedule& schedule, const OpInstance& at) {
  std::int64_t bytes = 0;
  for (const CollectivePart& part : at.op->parts) {
    const bool by_send = at.op->collective == CollectiveKind::kAllGather;
    bytes += view_bytes(schedule, at, by_send ? part.send : part.receive);
  }
  return bytes;
}

std::vector<PeerBytes> exchange_bytes(const Schedule& schedule, const OpInstance& at) {
  std::vector<PeerBytes> peers;
  if (at.op->parts.empty()) return peers;
  const int self = schedule.member_index(at.rank, at.op->role);
  for (const CollectivePart& part : at.op->parts) {
    LH_ASSERT(part.exchange >= 0, "`{}`: an exchange part without peers", at.op->label);
    const ExchangeListPtr& list = at.shape->exchanges[static_cast<std::size_t>(part.exchange)];
    if (list == nullptr) continue;
    const auto size = [&](const View& view) {
      return element_bytes(schedule.tensors[static_cast<std::size_t>(view.tensor.kind)].type);
    };
    for (const PeerExchange& exchange : *list) {
      if (exchange.peer == self) continue;
      PeerBytes bytes{exchange.peer, 0, 0};
      if (exchange.send_rows) bytes.send = exchange.send_rows->rows * exchange.send_columns * size(part.send);
      if (exchange.receive_rows) {
        bytes.receive = exchange.receive_rows->rows * exchange.receive_columns * size(part.receive);
      }
      if (bytes.send == 0 && bytes.receive == 0) continue;
      const auto found =
          std::find_if(peers.begin(), peers.end(), [&](const PeerBytes& p) { return p.peer == bytes.peer; });
      if (found == peers.end()) {
        peers.push_back(bytes);
      } else {
        found->send += bytes.send;
        found->receive += bytes.receive;
      }
    }
  }
  return peers;
}

namespace {

// An attention backward that writes (not adds to) gradients of keys leaves zeros where no query is: work, if there are
// keys.
bool zeroes_gradients(const Schedule& schedule, const OpInstance& at) {
  if (at.op->pass != Pass::kBackward) return false;
  for (const ExpandedOperand& operand : expand_operands(at)) {
    for (const View* view : {&operand.operand->key_gradient, &operand.operand->value_gradient}) {
      if (view->access != Access::kWrite || view->columns == 0) continue;
      OpInstance there = at;  // all rows of an operand are those of its own chunk
      if (operand.chunk != at.chunk && view->rows == kAllRows) there.shape = &schedule.shape(at.rank, operand.chunk);
      if (view_rows(schedule, there, *view) > 0) return true;
    }
  }
  return false;
}

}  // namespace

bool is_empty(const Schedule& schedule, const OpInstance& at) {
  const Op& op = *at.op;
  if (op.function == Function::kGiven) return true;
  switch (op.kind) {
    case OpKind::kGemm: {
      const GemmShape shape = gemm_shape(schedule, at);
      // A weight gradient over no rows still has to leave its operand as it is; a write of zero would be lost.
      return shape.m == 0 || shape.n == 0 || (shape.k == 0 && op.operands[2].access == Access::kAccumulate);
    }
    case OpKind::kAttention:
      return view_rows(schedule, at, op.q) == 0 && !zeroes_gradients(schedule, at);
    case OpKind::kCollective:
      if (op.collective != CollectiveKind::kExchange) return collective_buffer_bytes(schedule, at) == 0;
      return std::all_of(op.parts.begin(), op.parts.end(), [&](const CollectivePart& part) {
        const ExchangeListPtr& list = at.shape->exchanges[static_cast<std::size_t>(part.exchange)];
        return list == nullptr || list->empty();  // a copy to itself is something to do
      });
    case OpKind::kMergePartials:
    case OpKind::kElementwise:
    case OpKind::kMove:
    case OpKind::kOptimizer:
      return touched_bytes(schedule, at) == 0;
  }
  return false;
}

}  // namespace longhaul
