#include "sim/strategies/step/blocks.h"

#include <string>
#include <utility>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

std::string named(const char* name, int division) { return name + std::to_string(division + 1); }

}  // namespace

std::int64_t BlockScheme::query_forward_bytes(const ModelShape& model) {
  return 2 * model.q_width() * element_bytes(ElementType::kBf16) + model.q_heads * element_bytes(ElementType::kFp32);
}

std::int64_t BlockScheme::query_backward_bytes(const ModelShape& model) {
  return 3 * model.q_width() * element_bytes(ElementType::kBf16) + model.q_heads * element_bytes(ElementType::kFp32);
}

std::int64_t BlockScheme::key_pass_bytes(const ModelShape& model) {
  return 2 * model.kv_width() * element_bytes(ElementType::kBf16);
}

void BlockScheme::declare(ScheduleBuilder& builder, const ModelShape& model, const AttentionTensors& tensors) {
  LH_ASSERT(count_ >= 1, "{} divisions", count_);
  builder_ = &builder;
  model_ = model;
  tensors_ = tensors;
  role_ = builder.role("context");
  local_pieces_ = builder.piece_slot();
  packed_ = builder.event();
  computed_ = builder.event();
  const RowMapSlot rows = builder.schedule.tensors[static_cast<std::size_t>(tensors.qkv)].rows;
  lse_ = builder.tensor("lse", rows, model.q_heads, ElementType::kFp32, MemoryCategory::kActivations);
  output_part_ =
      builder.tensor("attention_output_part", rows, model.q_width(), ElementType::kBf16, MemoryCategory::kActivations);
  lse_part_ = builder.tensor("lse_part", rows, model.q_heads, ElementType::kFp32, MemoryCategory::kActivations);
  for (int i = 0; i < count_; ++i) declare_division();
}

void BlockScheme::declare_division() {
  const auto index = static_cast<int>(divisions_.size());
  Division d;
  for (RowMapSlot* slot : {&d.query_send_map, &d.key_send_map, &d.query_map, &d.key_map}) {
    *slot = builder_->row_map_slot();
  }
  for (RowListSlot* slot : {&d.query_sends, &d.key_sends, &d.own_rows}) *slot = builder_->row_list_slot();
  d.own_pieces = builder_->piece_slot();
  d.remote_pieces = builder_->piece_slot();
  for (Route* route : {&d.queries, &d.keys, &d.lses}) {
    route->cast = builder_->exchange_slot();
    route->home = builder_->exchange_slot();
  }
  d.arrived = builder_->event();
  d.returned = builder_->event();
  const auto wide = [&](const char* name, RowMapSlot rows, std::int64_t width, MemoryCategory category) {
    return builder_->tensor(named(name, index), rows, width, ElementType::kBf16, category);
  };
  const auto lse = [&](const char* name, RowMapSlot rows, MemoryCategory category) {
    return builder_->tensor(named(name, index), rows, model_.q_heads, ElementType::kFp32, category);
  };
  const std::int64_t q = model_.q_width(), kv = 2 * model_.kv_width();
  const MemoryCategory buffer = MemoryCategory::kCommunication, kept = MemoryCategory::kKeyValue;
  d.query_send = wide("q_send", d.query_send_map, q, buffer);
  d.key_send = wide("kv_send", d.key_send_map, kv, buffer);
  d.query = wide("q_received", d.query_map, q, kept);
  d.key = wide("kv_received", d.key_map, kv, kept);
  d.output = wide("o_away", d.query_map, q, buffer);
  d.lse = lse("lse_away", d.query_map, buffer);
  d.output_home = wide("o_home", d.query_send_map, q, buffer);
  d.lse_home = lse("lse_home", d.query_send_map, buffer);
  d.sent[0] = wide("do_send", d.query_send_map, q, buffer);
  d.sent[1] = wide("o_send", d.query_send_map, q, buffer);
  d.sent[2] = lse("lse_send", d.query_send_map, buffer);
  d.received[0] = wide("do_received", d.query_map, q, kept);
  d.received[1] = wide("o_received", d.query_map, q, kept);
  d.received[2] = lse("lse_received", d.query_map, kept);
  d.query_grad = wide("dq_away", d.query_map, q, kept);
  d.key_grad = wide("dkv_away", d.key_map, kv, kept);
  d.query_grad_home = wide("dq_home", d.query_send_map, q, buffer);
  d.key_grad_home = wide("dkv_home", d.key_send_map, kv, buffer);
  divisions_.push_back(d);
}

View BlockScheme::queries(const TensorRef& qkv, Access access, RowListSlot rows) const {
  return columns_of(qkv, access, 0, model_.q_width(), rows);
}

View BlockScheme::keys_values(const TensorRef& qkv, Access access, RowListSlot rows) const {
  return columns_of(qkv, access, model_.q_width(), 2 * model_.kv_width(), rows);
}

Op BlockScheme::attention_op(PieceSlot pieces) const {
  Op op;
  op.pieces = pieces;
  op.q_heads = model_.q_heads;
  op.kv_heads = model_.kv_heads;
  op.head_dim = model_.head_dim;
  return op;
}

// Own keys and values in place; their gradients in qkv_grad, which the local launch writes `first`.
KeyValueOperand BlockScheme::own_operand(std::uint8_t instance, bool backward, bool first) const {
  const TensorRef qkv = layer_tensor(tensors_.qkv, instance);
  const std::int64_t q = model_.q_width(), kv = model_.kv_width();
  KeyValueOperand operand;
  operand.key = columns_of(qkv, Access::kRead, q, kv);
  operand.value = columns_of(qkv, Access::kRead, q + kv, kv);
  if (!backward) return operand;
  const Access access = first ? Access::kWrite : Access::kAccumulate;
  operand.key_gradient = columns_of(chunk_tensor(tensors_.qkv_grad), access, q, kv);
  operand.value_gradient = columns_of(chunk_tensor(tensors_.qkv_grad), access, q + kv, kv);
  return operand;
}

KeyValueOperand BlockScheme::received_operand(int division, std::uint8_t instance, bool backward) const {
  const TensorRef keys = layer_tensor(at(division).key, instance);
  const std::int64_t kv = model_.kv_width();
  KeyValueOperand operand;
  operand.key = columns_of(keys, Access::kRead, 0, kv);
  operand.value = columns_of(keys, Access::kRead, kv, kv);
  if (!backward) return operand;
  const TensorRef grad = chunk_tensor(at(division).key_grad);
  operand.key_gradient = columns_of(grad, Access::kAccumulate, 0, kv);
  operand.value_gradient = columns_of(grad, Access::kAccumulate, kv, kv);
  return operand;
}

// --- Forward --------------------------------------------------------------------------------------------------------

void BlockScheme::cast(SegmentWriter& w, int division, std::uint8_t instance) const {
  const Division& d = at(division);
  const TensorRef qkv = layer_tensor(tensors_.qkv, instance);
  const TensorRef query_buffer = chunk_tensor(d.query_send), key_buffer = chunk_tensor(d.key_send);
  const TensorRef query = layer_tensor(d.query, instance), key = layer_tensor(d.key, instance);
  w.move(named("pack", division),
         {queries(qkv, Access::kRead, d.query_sends), builder_->whole(query_buffer, Access::kWrite),
          keys_values(qkv, Access::kRead, d.key_sends), builder_->whole(key_buffer, Access::kWrite)})
      .acquires({query_buffer, key_buffer})
      .records(packed_);
  w.collective(named("cast", division), CollectiveKind::kExchange, role_,
               {{builder_->whole(query_buffer, Access::kRead), builder_->whole(query, Access::kWrite), d.queries.cast},
                {builder_->whole(key_buffer, Access::kRead), builder_->whole(key, Access::kWrite), d.keys.cast}})
      .waits(packed_)
      .acquires({query, key})
      .releases({query_buffer, key_buffer})
      .records(d.arrived);
}

void BlockScheme::attend_local(SegmentWriter& w, std::uint8_t instance) const {
  const TensorRef output = layer_tensor(tensors_.attention_output, instance), lse = layer_tensor(lse_, instance);
  Op op = attention_op(local_pieces_);
  op.q = queries(layer_tensor(tensors_.qkv, instance), Access::kRead);
  op.key_values = {own_operand(instance, false, false)};
  op.o = builder_->whole(output, Access::kWrite);
  op.lse = builder_->whole(lse, Access::kWrite);
  w.attention("attention_local", std::move(op)).acquires({output, lse});
}

// Received queries; their results start home.
void BlockScheme::attend_remote(SegmentWriter& w, int division, std::uint8_t instance) const {
  const Division& d = at(division);
  const TensorRef output = chunk_tensor(d.output), lse = chunk_tensor(d.lse);
  const TensorRef output_home = chunk_tensor(d.output_home), lse_home = chunk_tensor(d.lse_home);
  Op op = attention_op(d.remote_pieces);
  op.q = builder_->whole(layer_tensor(d.query, instance), Access::kRead);
  op.key_values = {own_operand(instance, false, false)};
  for (int i = 0; i <= division; ++i) op.key_values.push_back(received_operand(i, instance, false));
  op.o = builder_->whole(output, Access::kWrite);
  op.lse = builder_->whole(lse, Access::kWrite);
  w.attention(named("attention_away", division), std::move(op))
      .waits(d.arrived)
      .acquires({output, lse})
      .records(computed_);
  w.collective(named("home", division), CollectiveKind::kExchange, role_,
               {{builder_->whole(output, Access::kRead), builder_->whole(output_home, Access::kWrite), d.queries.home},
                {builder_->whole(lse, Access::kRead), builder_->whole(lse_home, Access::kWrite), d.lses.home}})
      .waits(computed_)
      .acquires({output_home, lse_home})
      .releases({output, lse})
      .records(d.returned);
}

// Own queries against the keys that came in this division.
void BlockScheme::attend_own(SegmentWriter& w, int division, std::uint8_t instance) const {
  const Division& d = at(division);
  const TensorRef output = chunk_tensor(output_part_), lse = chunk_tensor(lse_part_);
  const auto outputs = [&](const TensorRef& ref, Access access) {
    return columns_of(ref, access, 0, model_.q_width(), d.own_rows);
  };
  const auto lses = [&](const TensorRef& ref, Access access) {
    return columns_of(ref, access, 0, model_.q_heads, d.own_rows);
  };
  Op op = attention_op(d.own_pieces);
  op.q = queries(layer_tensor(tensors_.qkv, instance), Access::kRead, d.own_rows);
  op.key_values = {received_operand(division, instance, false)};
  op.o = outputs(output, Access::kWrite);
  op.lse = lses(lse, Access::kWrite);
  w.attention(named("attention", division), std::move(op)).acquires({output, lse});
  w.merge(named("merge", division), outputs(output, Access::kRead), lses(lse, Access::kRead),
          outputs(layer_tensor(tensors_.attention_output, instance), Access::kAccumulate),
          lses(layer_tensor(lse_, instance), Access::kAccumulate))
      .releases({output, lse});
}

void BlockScheme::forward(SegmentWriter& w, const ForwardMode& mode) {
  const std::uint8_t i = mode.instance;
  for (int d = 0; d < count_; ++d) cast(w, d, i);
  attend_local(w, i);
  for (int d = 0; d < count_; ++d) {
    attend_remote(w, d, i);
    attend_own(w, d, i);
    w.releases_if(!mode.keep, {layer_tensor(at(d).query, i)});
  }
  for (int d = 0; d < count_; ++d) w.releases_if(!mode.keep, {layer_tensor(at(d).key, i)});
  const TensorRef output = layer_tensor(tensors_.attention_output, i), lse = layer_tensor(lse_, i);
  for (int d = 0; d < count_; ++d) {
    const TensorRef output_home = chunk_tensor(at(d).output_home), lse_home = chunk_tensor(at(d).lse_home);
    w.merge(named("merge_home", d), builder_->whole(output_home, Access::kRead),
            builder_->whole(lse_home, Access::kRead),
            columns_of(output, Access::kAccumulate, 0, model_.q_width(), at(d).query_sends),
            columns_of(lse, Access::kAccumulate, 0, model_.q_heads, at(d).query_sends))
        .waits(at(d).returned)
        .releases({output_home, lse_home});
  }
  w.releases_if(!mode.keep, {layer_tensor(tensors_.qkv, i), lse});
}

// --- Backward -------------------------------------------------------------------------------------------------------

// Output gradient, output and log-sum-exp of the queries that are away follow them.
void BlockScheme::cast_gradients(SegmentWriter& w, int division, std::uint8_t instance) const {
  const Division& d = at(division);
  const TensorRef sources[3] = {chunk_tensor(tensors_.attention_output_grad),
                                layer_tensor(tensors_.attention_output, instance), layer_tensor(lse_, instance)};
  std::vector<View> pairs;
  std::vector<CollectivePart> parts;
  for (int which = 0; which < 3; ++which) {
    const std::int64_t width = which == 2 ? model_.q_heads : model_.q_width();
    const TensorRef sent = chunk_tensor(d.sent[which]), received = chunk_tensor(d.received[which]);
    pairs.push_back(columns_of(sources[which], Access::kRead, 0, width, d.query_sends));
    pairs.push_back(builder_->whole(sent, Access::kWrite));
    parts.push_back({builder_->whole(sent, Access::kRead), builder_->whole(received, Access::kWrite),
                     which == 2 ? d.lses.cast : d.queries.cast});
  }
  w.move(named("grad_pack", division), std::move(pairs))
      .acquires({chunk_tensor(d.sent[0]), chunk_tensor(d.sent[1]), chunk_tensor(d.sent[2])})
      .records(packed_);
  w.collective(named("grad_cast", division), CollectiveKind::kExchange, role_, std::move(parts))
      .waits(packed_)
      .acquires({chunk_tensor(d.received[0]), chunk_tensor(d.received[1]), chunk_tensor(d.received[2])})
      .releases({chunk_tensor(d.sent[0]), chunk_tensor(d.sent[1]), chunk_tensor(d.sent[2])})
      .records(d.arrived);
  const TensorRef key_grad = chunk_tensor(d.key_grad);
  w.elementwise(named("zero_grad", division), Function::kZero, {builder_->whole(key_grad, Access::kWrite)})
      .acquires({key_grad});
}

void BlockScheme::attend_local_backward(SegmentWriter& w, std::uint8_t instance) const {
  const TensorRef qkv_grad = chunk_tensor(tensors_.qkv_grad);
  Op op = attention_op(local_pieces_);
  op.q = queries(layer_tensor(tensors_.qkv, instance), Access::kRead);
  op.key_values = {own_operand(instance, true, true)};
  op.o = builder_->whole(layer_tensor(tensors_.attention_output, instance), Access::kRead);
  op.lse = builder_->whole(layer_tensor(lse_, instance), Access::kRead);
  op.o_gradient = builder_->whole(chunk_tensor(tensors_.attention_output_grad), Access::kRead);
  op.q_gradient = queries(qkv_grad, Access::kWrite);
  w.attention("attention_local_backward", std::move(op)).acquires({qkv_grad});
}

void BlockScheme::attend_remote_backward(SegmentWriter& w, int division, std::uint8_t instance) const {
  const Division& d = at(division);
  const TensorRef query_grad = chunk_tensor(d.query_grad);
  Op op = attention_op(d.remote_pieces);
  op.q = builder_->whole(layer_tensor(d.query, instance), Access::kRead);
  op.key_values = {own_operand(instance, true, false)};
  for (int i = 0; i <= division; ++i) op.key_values.push_back(received_operand(i, instance, true));
  op.o_gradient = builder_->whole(chunk_tensor(d.received[0]), Access::kRead);
  op.o = builder_->whole(chunk_tensor(d.received[1]), Access::kRead);
  op.lse = builder_->whole(chunk_tensor(d.received[2]), Access::kRead);
  op.q_gradient = builder_->whole(query_grad, Access::kWrite);
  w.attention(named("attention_away_backward", division), std::move(op))
      .waits(d.arrived)
      .acquires({query_grad})
      .releases({layer_tensor(d.query, instance), chunk_tensor(d.received[0]), chunk_tensor(d.received[1]),
                 chunk_tensor(d.received[2])});
}

void BlockScheme::attend_own_backward(SegmentWriter& w, int division, std::uint8_t instance) const {
  const Division& d = at(division);
  const auto rows = [&](const TensorRef& ref, Access access, std::int64_t width) {
    return columns_of(ref, access, 0, width, d.own_rows);
  };
  Op op = attention_op(d.own_pieces);
  op.q = queries(layer_tensor(tensors_.qkv, instance), Access::kRead, d.own_rows);
  op.key_values = {received_operand(division, instance, true)};
  op.o = rows(layer_tensor(tensors_.attention_output, instance), Access::kRead, model_.q_width());
  op.lse = rows(layer_tensor(lse_, instance), Access::kRead, model_.q_heads);
  op.o_gradient = rows(chunk_tensor(tensors_.attention_output_grad), Access::kRead, model_.q_width());
  op.q_gradient = rows(chunk_tensor(tensors_.qkv_grad), Access::kAccumulate, model_.q_width());
  w.attention(named("attention_backward", division), std::move(op)).releases({layer_tensor(d.key, instance)});
}

void BlockScheme::return_gradients(SegmentWriter& w, int division) const {
  const Division& d = at(division);
  const TensorRef query_grad = chunk_tensor(d.query_grad), key_grad = chunk_tensor(d.key_grad);
  const TensorRef query_home = chunk_tensor(d.query_grad_home), key_home = chunk_tensor(d.key_grad_home);
  w.records(computed_);
  w.collective(
       named("grad_home", division), CollectiveKind::kExchange, role_,
       {{builder_->whole(query_grad, Access::kRead), builder_->whole(query_home, Access::kWrite), d.queries.home},
        {builder_->whole(key_grad, Access::kRead), builder_->whole(key_home, Access::kWrite), d.keys.home}})
      .waits(computed_)
      .acquires({query_home, key_home})
      .releases({query_grad, key_grad})
      .records(d.returned);
}

void BlockScheme::backward(SegmentWriter& w, const ForwardMode& mode) {
  const std::uint8_t i = mode.instance;
  for (int d = count_ - 1; d >= 0; --d) cast_gradients(w, d, i);
  attend_local_backward(w, i);
  for (int d = count_ - 1; d >= 0; --d) {
    attend_remote_backward(w, d, i);
    attend_own_backward(w, d, i);
    if (d == 0) {
      w.releases({layer_tensor(tensors_.qkv, i), layer_tensor(tensors_.attention_output, i), layer_tensor(lse_, i),
                  chunk_tensor(tensors_.attention_output_grad)});
    }
    return_gradients(w, d);
  }
  const TensorRef qkv_grad = chunk_tensor(tensors_.qkv_grad);
  for (int d = count_ - 1; d >= 0; --d) {
    const TensorRef query_home = chunk_tensor(at(d).query_grad_home), key_home = chunk_tensor(at(d).key_grad_home);
    w.move(named("grad_unpack", d),
           {builder_->whole(query_home, Access::kRead), queries(qkv_grad, Access::kAccumulate, at(d).query_sends),
            builder_->whole(key_home, Access::kRead), keys_values(qkv_grad, Access::kAccumulate, at(d).key_sends)})
        .waits(at(d).returned)
        .releases({query_home, key_home});
  }
}

// --- Shapes ---------------------------------------------------------------------------------------------------------

void BlockScheme::set_shape(ShapeSet& shape, const BlockShape& spec) const {
  LH_ASSERT(static_cast<int>(spec.divisions.size()) == count_, "{} divisions of {}", spec.divisions.size(), count_);
  shape.pieces[static_cast<std::size_t>(local_pieces_)] = spec.local_pieces;
  for (int i = 0; i < count_; ++i) {
    const Division& d = at(i);
    const BlockDivision& of = spec.divisions[static_cast<std::size_t>(i)];
    const auto list = [&](RowListSlot slot, const RowListPtr& rows) {
      shape.row_lists[static_cast<std::size_t>(slot)] = rows;
    };
    const auto map = [&](RowMapSlot slot, const RowMapPtr& rows) {
      shape.row_maps[static_cast<std::size_t>(slot)] = rows;
    };
    list(d.query_sends, of.query_sends);
    list(d.key_sends, of.key_sends);
    list(d.own_rows, of.own_rows);
    // No op reads tokens of a send buffer: its rows count as padding.
    map(d.query_send_map, make_row_map({{-1, TokenView::kClean, 0, of.query_sends->rows}}));
    map(d.key_send_map, make_row_map({{-1, TokenView::kClean, 0, of.key_sends->rows}}));
    map(d.query_map, of.query_rows);
    map(d.key_map, of.key_rows);
    shape.pieces[static_cast<std::size_t>(d.own_pieces)] = of.own_pieces;
    shape.pieces[static_cast<std::size_t>(d.remote_pieces)] = of.remote_pieces;
    const auto exchange = [&](const Route& route, std::int64_t width, bool keys) {
      auto cast = std::make_shared<ExchangeList>(), home = std::make_shared<ExchangeList>();
      for (const BlockPeer& peer : of.peers) {
        const RowListPtr& send = keys ? peer.key_send : peer.query_send;
        const RowListPtr& receive = keys ? peer.key_receive : peer.query_receive;
        if (send == nullptr && receive == nullptr && !(keys ? peer.joins_keys : peer.joins_queries)) continue;
        const std::int64_t sent = send == nullptr ? 0 : width, received = receive == nullptr ? 0 : width;
        cast->push_back({peer.peer, send, 0, sent, receive, 0, received});
        home->push_back({peer.peer, receive, 0, received, send, 0, sent});
      }
      shape.exchanges[static_cast<std::size_t>(route.cast)] = std::move(cast);
      shape.exchanges[static_cast<std::size_t>(route.home)] = std::move(home);
    };
    exchange(d.queries, model_.q_width(), false);
    exchange(d.keys, 2 * model_.kv_width(), true);
    exchange(d.lses, model_.q_heads, false);
  }
}

}  // namespace longhaul
