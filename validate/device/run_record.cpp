#include "validate/device/run_record.h"

#include "sim/core/fingerprint.h"

namespace longhaul {
namespace {

class ScheduleHash {
 public:
  void number(std::int64_t value) { hash_.add(value); }
  void text(const std::string& value) { hash_.add(value); }

  void ref(const TensorRef& of) {
    for (const std::int64_t value : {std::int64_t{of.kind}, std::int64_t{of.layer_offset}, std::int64_t{of.has_layer},
                                     std::int64_t{of.has_chunk}, std::int64_t{of.instance}, std::int64_t{of.chunks}}) {
      number(value);
    }
  }
  void view(const View& of) {
    ref(of.tensor);
    for (const std::int64_t value : {static_cast<std::int64_t>(of.access), std::int64_t{of.rows}, of.column_begin,
                                     of.columns, of.flat_begin, of.flat_rows}) {
      number(value);
    }
  }

  void op(const Op& of) {
    for (const std::int64_t value :
         {static_cast<std::int64_t>(of.kind), static_cast<std::int64_t>(of.pass),
          static_cast<std::int64_t>(of.function), std::int64_t{of.stream}, static_cast<std::int64_t>(of.guard),
          std::int64_t{of.record}, std::int64_t{of.transpose_a}, std::int64_t{of.transpose_b}, std::int64_t{of.pieces},
          of.q_heads, of.kv_heads, of.head_dim, std::int64_t{of.head_role}, static_cast<std::int64_t>(of.collective),
          std::int64_t{of.role}, std::int64_t{of.pipeline_edge}}) {
      number(value);
    }
    text(of.label);
    list(of.waits, [&](EventSlot slot) { number(slot); });
    list(of.acquire, [&](const TensorRef& each) { ref(each); });
    list(of.release, [&](const TensorRef& each) { ref(each); });
    list(of.operands, [&](const View& each) { view(each); });
    for (const View* each : {&of.q, &of.o, &of.lse, &of.q_gradient, &of.o_gradient}) view(*each);
    list(of.key_values, [&](const KeyValueOperand& each) {
      for (const View* part : {&each.key, &each.value, &each.key_gradient, &each.value_gradient}) view(*part);
      number(each.chunks);
    });
    list(of.parts, [&](const CollectivePart& part) {
      view(part.send);
      view(part.receive);
      number(part.exchange);
    });
  }

  void shape(const ShapeSet& of) {
    list(of.row_maps, [&](const RowMapPtr& map) {
      number(map == nullptr ? 0 : 1);
      if (map != nullptr) list(map->runs, [&](const RowRun& run) { row_run(run); });
    });
    list(of.row_lists, [&](const RowListPtr& rows) { row_list(rows); });
    list(of.pieces, [&](const PieceListPtr& pieces) {
      number(pieces == nullptr ? 0 : 1);
      if (pieces != nullptr) list(pieces->pieces, [&](const Piece& each) { piece(each); });
    });
    list(of.chunk_lists,
         [&](const std::vector<std::int32_t>& chunks) { list(chunks, [&](std::int32_t chunk) { number(chunk); }); });
    list(of.exchanges, [&](const ExchangeListPtr& exchange) {
      number(exchange == nullptr ? 0 : 1);
      if (exchange == nullptr) return;
      list(*exchange, [&](const PeerExchange& peer) {
        for (const std::int64_t value : {std::int64_t{peer.peer}, peer.send_column, peer.send_columns,
                                         peer.receive_column, peer.receive_columns}) {
          number(value);
        }
        row_list(peer.send_rows);
        row_list(peer.receive_rows);
      });
    });
  }

  template <class List, class Each>
  void list(const List& values, Each&& each) {
    number(static_cast<std::int64_t>(values.size()));
    for (const auto& value : values) each(value);
  }
  std::uint64_t value() const { return hash_.value(); }

 private:
  void row_run(const RowRun& run) {
    for (const std::int64_t value : {std::int64_t{run.document}, static_cast<std::int64_t>(run.view), run.first,
                                     run.count, std::int64_t{run.run}, std::int64_t{run.stride}}) {
      number(value);
    }
  }
  void row_list(const RowListPtr& rows) {
    number(rows == nullptr ? 0 : 1);
    if (rows == nullptr) return;
    list(rows->spans, [&](const RowSpan& span) {
      number(span.begin);
      number(span.count);
    });
  }
  void piece(const Piece& of) {
    for (const std::int64_t value :
         {of.q_row, of.q_count, of.q_token, of.k_row, of.k_count, of.k_token, std::int64_t{of.q_run},
          std::int64_t{of.q_stride}, std::int64_t{of.k_run}, std::int64_t{of.k_stride}, std::int64_t{of.block},
          std::int64_t{of.operand}, static_cast<std::int64_t>(of.rule)}) {
      number(value);
    }
  }

  Fingerprint hash_;
};

}  // namespace

const char* to_string(RankPlacement placement) {
  switch (placement) {
    case RankPlacement::kVirtual:
      return "virtual";
    case RankPlacement::kReal:
      return "real";
  }
  return "";
}

std::uint64_t schedule_fingerprint(const Schedule& schedule) {
  ScheduleHash hash;
  const ModelShape& model = schedule.model;
  for (const std::int64_t value :
       {model.hidden, model.ffn, model.q_heads, model.kv_heads, model.head_dim, model.layers, model.vocab,
        std::int64_t{model.tied_embeddings}, std::int64_t{model.qkv_bias}, std::int64_t{model.qk_norm}}) {
    hash.number(value);
  }
  hash.number(static_cast<std::int64_t>(schedule.batch->objective.kind));
  hash.number(schedule.batch->objective.block_tokens);
  hash.list(schedule.batch->documents, [&](std::int64_t tokens) { hash.number(tokens); });
  hash.list(schedule.tensors, [&](const TensorKind& kind) {
    hash.text(kind.name);
    for (const std::int64_t value : {std::int64_t{kind.rows}, kind.flat_rows, kind.columns,
                                     static_cast<std::int64_t>(kind.type), static_cast<std::int64_t>(kind.category)}) {
      hash.number(value);
    }
  });
  hash.list(schedule.segments, [&](const Segment& segment) {
    hash.text(segment.name);
    hash.list(segment.ops, [&](const Op& op) { hash.op(op); });
  });
  hash.list(schedule.programs, [&](const Program& program) {
    hash.list(program.blocks, [&](const Block& block) {
      for (const std::int64_t value :
           {std::int64_t{block.segment}, std::int64_t{block.first_layer}, std::int64_t{block.iterations},
            std::int64_t{block.layer_step}, std::int64_t{block.chunk}}) {
        hash.number(value);
      }
    });
    hash.list(program.resident, [&](const TensorRef& ref) { hash.ref(ref); });
  });
  hash.list(schedule.groups,
            [&](const Group& group) { hash.list(group.members, [&](std::int32_t rank) { hash.number(rank); }); });
  hash.list(schedule.roles, [&](const std::string& role) { hash.text(role); });
  hash.list(schedule.ranks, [&](const RankInfo& rank) {
    hash.number(rank.program);
    hash.list(rank.groups, [&](GroupId group) { hash.number(group); });
    hash.list(rank.shapes, [&](ShapeId shape) { hash.number(shape); });
  });
  hash.list(schedule.shapes, [&](const ShapeSet& shape) { hash.shape(shape); });
  return hash.value();
}

}  // namespace longhaul
