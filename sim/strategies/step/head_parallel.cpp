#include "sim/strategies/step/head_parallel.h"

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

const char* const kHeadTensors[3] = {"q", "k", "v"};

}  // namespace

HeadParallelScheme::HeadParallelScheme(int group_size, bool context, bool framework)
    : group_size_(group_size), context_(context), framework_(framework) {
  LH_ASSERT(!context || !framework, "copies of a framework around slices");
}

void HeadParallelScheme::declare(ScheduleBuilder& builder, const ModelShape& model, const AttentionTensors& tensors) {
  builder_ = &builder;
  model_ = model;
  tensors_ = tensors;
  const std::int64_t replication = group_size_ > model.kv_heads ? group_size_ / model.kv_heads : 1;
  q_heads_ = model.q_heads / group_size_;
  kv_heads_ = model.kv_heads * replication / group_size_;
  LH_ASSERT(q_heads_ * group_size_ == model.q_heads && kv_heads_ * group_size_ == model.kv_heads * replication,
            "{} ranks cannot share {} query and {} KV heads", group_size_, model.q_heads, model.kv_heads);
  role_ = builder.role("sequence");
  pieces_ = builder.piece_slot();
  if (context_) {
    context_list_ = builder.chunk_list_slot();
    first_touched_ = builder.chunk_list_slot();
  }
  packed_ = builder.event();
  arrived_ = builder.event();
  attended_ = builder.event();
  group_rows_ = builder.row_map_slot();
  blocked_rows_ = builder.row_map_slot();
  const std::int64_t q_width = q_heads_ * model.head_dim;
  const std::int64_t kv_width = kv_heads_ * model.head_dim;
  const auto add = [&](const char* name, RowMapSlot rows, std::int64_t width, MemoryCategory category) {
    return builder.tensor(name, rows, width, ElementType::kBf16, category);
  };
  lse_ = builder.tensor("lse", group_rows_, q_heads_, ElementType::kFp32, MemoryCategory::kActivations);
  if (direct()) return;
  const char* names[3] = {"q_heads", "k_heads", "v_heads"};
  const char* gradients[3] = {"q_heads_grad", "k_heads_grad", "v_heads_grad"};
  for (int which = 0; which < 3; ++which) {
    const MemoryCategory category = which == 0 ? MemoryCategory::kActivations : MemoryCategory::kKeyValue;
    const std::int64_t width = which == 0 ? q_width : kv_width;
    in_heads_[which] = add(names[which], group_rows_, width, category);
    in_heads_grad_[which] = add(gradients[which], group_rows_, width, category);
  }
  if (!exchanged()) return;
  if (copied()) {
    q_copy_ = add("q_copy", group_rows_, q_width, MemoryCategory::kActivations);
    kv_copy_ = add("kv_copy", group_rows_, kv_width, MemoryCategory::kActivations);
  }
  output_ = add("o_heads", group_rows_, q_width, MemoryCategory::kActivations);
  output_grad_ = add("o_heads_grad", group_rows_, q_width, MemoryCategory::kActivations);
  q_blocks_ = add("q_blocks", blocked_rows_, q_width, MemoryCategory::kCommunication);
  kv_blocks_[0] = add("k_blocks", blocked_rows_, kv_width, MemoryCategory::kCommunication);
  kv_blocks_[1] = add("v_blocks", blocked_rows_, kv_width, MemoryCategory::kCommunication);
  q_to_heads_ = builder.exchange_slot();
  kv_to_heads_ = builder.exchange_slot();
  q_to_tokens_ = builder.exchange_slot();
  kv_to_tokens_ = builder.exchange_slot();
}

View HeadParallelScheme::part(const TensorRef& qkv, Access access, int which) const {
  const std::int64_t q = model_.q_width();
  const std::int64_t kv = model_.kv_width();
  if (which == 0) return columns_of(qkv, access, 0, q);
  return columns_of(qkv, access, which == 1 ? q : q + kv, kv);
}

// Brings Q (and K, V) from the projection's output to this rank's heads.
void HeadParallelScheme::bring(SegmentWriter& w, const ForwardMode& mode, bool keys) const {
  const TensorRef qkv = layer_tensor(tensors_.qkv, mode.instance);
  const int count = keys ? 3 : 1;
  for (int which = 0; which < count; ++which) {
    const TensorRef target = layer_tensor(in_heads_[which], mode.instance);
    const View source = part(qkv, Access::kRead, which);
    const bool last = which + 1 == count;
    if (!exchanged()) {
      w.move(std::string(kHeadTensors[which]) + "_copy", {source, heads(target, Access::kWrite)})
          .acquires({target})
          .releases_if(last, {qkv});
      continue;
    }
    const TensorRef blocks = chunk_tensor(which == 0 ? q_blocks_ : kv_blocks_[which - 1]);
    w.move(std::string(kHeadTensors[which]) + "_pack", {source, heads(blocks, Access::kWrite)}, Function::kSplitColumns)
        .eager(permutation())
        .acquires({blocks})
        .releases_if(last, {qkv})
        .records(packed_);
    // The host enqueues no copy before the exchange ahead of it has arrived.
    if (copied() && which > 0) w.waits(arrived_);
    w.collective(
         std::string(kHeadTensors[which]) + "_to_heads", CollectiveKind::kExchange, role_,
         {{heads(blocks, Access::kRead), heads(target, Access::kWrite), which == 0 ? q_to_heads_ : kv_to_heads_}})
        .waits(packed_)
        .acquires({target})
        .releases({blocks})
        .records(arrived_);
    if (!permuted(which)) continue;
    copy_beside(w, std::string(kHeadTensors[which]) + "_order", target, which);
    w.eager(permutation()).waits(arrived_);
  }
}

void HeadParallelScheme::copy_beside(SegmentWriter& w, const std::string& label, const TensorRef& from,
                                     int which) const {
  const TensorRef to = chunk_tensor(which == 0 ? q_copy_ : kv_copy_);
  w.move(label, {heads(from, Access::kRead), heads(to, Access::kWrite)}).acquires({to}).releases({to});
}

void HeadParallelScheme::put_beside(SegmentWriter& w, const std::string& label, const TensorRef& from,
                                    int which) const {
  const TensorRef to = chunk_tensor(which == 0 ? q_copy_ : kv_copy_);
  w.elementwise("pad_zero", Function::kZero, {heads(to, Access::kWrite)})
      .eager(EagerKernel::kZeros)
      .acquires({to})
      .releases({to});
  copy_beside(w, label, from, which);
  w.eager(EagerKernel::kExpandedRows);
}

// The operands of a call, gathered from padded rows.
void HeadParallelScheme::take_operands(SegmentWriter& w, const ForwardMode& mode, bool backward) const {
  const auto take = [&](int which) {
    copy_beside(w, std::string(kHeadTensors[which]) + "_unpad", layer_tensor(in_heads_[which], mode.instance), which);
  };
  take(0);
  if (!backward) w.waits(arrived_);
  if (backward) {
    copy_beside(w, "output_unpad", layer_tensor(output_, mode.instance), 0);
    copy_beside(w, "do_unpad", chunk_tensor(output_grad_), 0);
    w.waits(arrived_);
  }
  take(1);
  take(2);
}

Op HeadParallelScheme::attention_op(const ForwardMode& mode, bool backward) const {
  Op op;
  op.pieces = pieces_;
  op.q_heads = q_heads_;
  op.kv_heads = kv_heads_;
  op.head_dim = model_.head_dim;
  op.head_role = exchanged() ? role_ : static_cast<GroupRole>(-1);
  const TensorRef qkv = layer_tensor(tensors_.qkv, mode.instance);
  const TensorRef qkv_grad = chunk_tensor(tensors_.qkv_grad);
  const Access o_access = backward ? Access::kRead : Access::kWrite;
  // Slices read the K and V that the forward pass left (instance 0), their own included.
  const std::uint8_t kv_instance = mode.context ? 0 : mode.instance;
  KeyValueOperand kv;
  if (direct()) {
    op.q = part(qkv, Access::kRead, 0);
    kv.key = part(qkv, Access::kRead, 1);
    kv.value = part(qkv, Access::kRead, 2);
  } else {
    op.q = heads(layer_tensor(in_heads_[0], mode.instance), Access::kRead);
    kv.key = heads(layer_tensor(in_heads_[1], kv_instance), Access::kRead);
    kv.value = heads(layer_tensor(in_heads_[2], kv_instance), Access::kRead);
  }
  const TensorKindId output = exchanged() ? output_ : tensors_.attention_output;
  op.o = heads(layer_tensor(output, mode.instance), o_access);
  op.lse = heads(layer_tensor(lse_, mode.instance), o_access);
  if (mode.context) kv.chunks = context_list_;
  if (backward) {
    const Access kv_access = mode.context ? Access::kAccumulate : Access::kWrite;
    if (direct()) {
      op.q_gradient = part(qkv_grad, Access::kWrite, 0);
      kv.key_gradient = part(qkv_grad, kv_access, 1);
      kv.value_gradient = part(qkv_grad, kv_access, 2);
    } else {
      op.q_gradient = heads(chunk_tensor(in_heads_grad_[0]), Access::kWrite);
      kv.key_gradient = heads(layer_tensor(in_heads_grad_[1]), kv_access);
      kv.value_gradient = heads(layer_tensor(in_heads_grad_[2]), kv_access);
    }
    op.o_gradient = heads(chunk_tensor(exchanged() ? output_grad_ : tensors_.attention_output_grad), Access::kRead);
  }
  op.key_values = {kv};
  return op;
}

void HeadParallelScheme::forward(SegmentWriter& w, const ForwardMode& mode) {
  const bool recomputing = w.pass() == Pass::kRecompute;
  const bool own_keys = !(mode.context && recomputing);  // a slice's K and V are still there from its forward pass
  if (!direct()) bring(w, mode, own_keys);
  const std::uint8_t i = mode.instance;
  const TensorRef attention_output = layer_tensor(tensors_.attention_output, i);
  const TensorRef output = exchanged() ? layer_tensor(output_, i) : attention_output;
  const TensorRef lse = layer_tensor(lse_, i);
  if (copied()) take_operands(w, mode, false);
  w.attention("attention", attention_op(mode, false)).acquires({output, lse});
  if (exchanged()) w.waits(arrived_);
  if (!mode.keep) {
    w.releases({lse});
    if (direct()) {
      w.releases({layer_tensor(tensors_.qkv, i)});
    } else {
      w.releases({layer_tensor(in_heads_[0], i)});
      if (!mode.context) w.releases({layer_tensor(in_heads_[1], i), layer_tensor(in_heads_[2], i)});
    }
  }
  if (!exchanged()) return;
  if (copied()) put_beside(w, "output_pad", output, 0);
  w.records(attended_);
  const TensorRef blocks = chunk_tensor(q_blocks_, 1);
  w.collective("o_to_tokens", CollectiveKind::kExchange, role_,
               {{heads(output, Access::kRead), heads(blocks, Access::kWrite), q_to_tokens_}})
      .waits(attended_)
      .acquires({blocks})
      .releases_if(!mode.keep, {output})
      .records(arrived_);
  w.move("o_unpack", {heads(blocks, Access::kRead), heads(attention_output, Access::kWrite)}, Function::kJoinColumns)
      .eager(permutation())
      .waits(arrived_)
      .acquires({attention_output})
      .releases({blocks});
}

// Sends a gradient with this rank's heads back to the ranks that hold the tokens, into its columns of qkv_grad.
void HeadParallelScheme::send_home(SegmentWriter& w, const TensorRef& gradient, int which, bool first) const {
  const char* names[3] = {"dq", "dk", "dv"};
  const TensorRef qkv_grad = chunk_tensor(tensors_.qkv_grad);
  const View target = part(qkv_grad, Access::kWrite, which);
  if (!exchanged()) {
    w.move(std::string(names[which]) + "_copy", {heads(gradient, Access::kRead), target}).releases({gradient});
    if (first) w.acquires({qkv_grad});
    return;
  }
  const TensorRef blocks = chunk_tensor(which == 0 ? q_blocks_ : kv_blocks_[which - 1], 1);
  w.move(std::string(names[which]) + "_unpack", {heads(blocks, Access::kRead), target}, Function::kJoinColumns)
      .eager(permutation())
      .waits(arrived_)
      .releases({blocks});
  if (first) w.acquires({qkv_grad});
}

void HeadParallelScheme::backward(SegmentWriter& w, const ForwardMode& mode) {
  const std::uint8_t i = mode.instance;
  const TensorRef attention_output = layer_tensor(tensors_.attention_output, i);
  const TensorRef attention_output_grad = chunk_tensor(tensors_.attention_output_grad);
  if (exchanged()) {
    const TensorRef blocks = chunk_tensor(q_blocks_);
    const TensorRef output_grad = chunk_tensor(output_grad_);
    w.move("do_pack", {heads(attention_output_grad, Access::kRead), heads(blocks, Access::kWrite)},
           Function::kSplitColumns)
        .eager(permutation())
        .acquires({blocks})
        .releases({attention_output_grad, attention_output})
        .records(packed_);
    w.collective("do_to_heads", CollectiveKind::kExchange, role_,
                 {{heads(blocks, Access::kRead), heads(output_grad, Access::kWrite), q_to_heads_}})
        .waits(packed_)
        .acquires({output_grad})
        .releases({blocks})
        .records(arrived_);
  }
  if (mode.context) {
    for (int which = 1; which < 3; ++which) {
      TensorRef touched = layer_tensor(in_heads_grad_[which]);
      touched.chunks = first_touched_;
      w.elementwise(which == 1 ? "zero_dk" : "zero_dv", Function::kZero, {heads(touched, Access::kWrite)})
          .acquires({touched});
    }
  }
  if (copied()) take_operands(w, mode, true);
  w.attention("attention_backward", attention_op(mode, true)).releases({layer_tensor(lse_, i)});
  if (exchanged())
    w.waits(arrived_).releases({layer_tensor(output_, i), chunk_tensor(output_grad_)});
  else
    w.releases({attention_output, attention_output_grad});
  if (direct()) {
    w.acquires({chunk_tensor(tensors_.qkv_grad)}).releases({layer_tensor(tensors_.qkv, i)});
    return;
  }
  const std::uint8_t kv_instance = mode.context ? 0 : i;
  w.acquires({chunk_tensor(in_heads_grad_[0])})
      .releases({layer_tensor(in_heads_[0], i), layer_tensor(in_heads_[1], kv_instance),
                 layer_tensor(in_heads_[2], kv_instance)});
  if (!mode.context) w.acquires({layer_tensor(in_heads_grad_[1]), layer_tensor(in_heads_grad_[2])});
  const TensorRef gradients[3] = {chunk_tensor(in_heads_grad_[0]), layer_tensor(in_heads_grad_[1]),
                                  layer_tensor(in_heads_grad_[2])};
  if (!exchanged()) {
    for (int which = 0; which < 3; ++which) send_home(w, gradients[which], which, which == 0);
    return;
  }
  w.records(attended_);
  for (int which = 0; copied() && which < 3; ++which) {
    put_beside(w, std::string("d") + kHeadTensors[which] + "_pad", gradients[which], which);
    w.records(attended_);
  }
  const char* names[3] = {"dq_to_tokens", "dk_to_tokens", "dv_to_tokens"};
  for (int which = 0; which < 3; ++which) {
    if (permuted(which)) {
      copy_beside(w, std::string("d") + kHeadTensors[which] + "_order", gradients[which], which);
      w.eager(permutation()).records(attended_);
    }
    const TensorRef blocks = chunk_tensor(which == 0 ? q_blocks_ : kv_blocks_[which - 1], 1);
    w.collective(names[which], CollectiveKind::kExchange, role_,
                 {{heads(gradients[which], Access::kRead), heads(blocks, Access::kWrite),
                   which == 0 ? q_to_tokens_ : kv_to_tokens_}})
        .waits(attended_)
        .acquires({blocks})
        .releases({gradients[which]})
        .records(arrived_);
    send_home(w, gradients[which], which, which == 0);
    if (copied()) w.records(attended_);
  }
}

void HeadParallelScheme::prepare(HeadParallelShape& spec, std::int64_t local_rows) const {
  if (!exchanged()) return;
  LH_ASSERT(
      static_cast<int>(spec.member_rows.size()) == group_size_ && spec.group_rows->rows == local_rows * group_size_,
      "{} rows of {} members, {} rows a member", spec.group_rows->rows, spec.member_rows.size(), local_rows);
  std::vector<RowListPtr> blocks;
  for (int peer = 0; peer < group_size_; ++peer) blocks.push_back(make_row_list({{peer * local_rows, local_rows}}));
  const auto list = [&](std::int64_t width, bool to_heads) {
    auto peers = std::make_shared<ExchangeList>();
    for (int peer = 0; peer < group_size_; ++peer) {
      const RowListPtr& block = blocks[static_cast<std::size_t>(peer)];
      const RowListPtr& rows = spec.member_rows[static_cast<std::size_t>(peer)];
      peers->push_back({peer, to_heads ? block : rows, 0, width, to_heads ? rows : block, 0, width});
    }
    return peers;
  };
  spec.q_to_heads = list(q_heads_ * model_.head_dim, true);
  spec.kv_to_heads = list(kv_heads_ * model_.head_dim, true);
  spec.q_to_tokens = list(q_heads_ * model_.head_dim, false);
  spec.kv_to_tokens = list(kv_heads_ * model_.head_dim, false);
}

void HeadParallelScheme::set_shape(ShapeSet& shape, std::int32_t chunk, std::int64_t local_rows,
                                   const HeadParallelShape& spec) const {
  shape.row_maps[static_cast<std::size_t>(group_rows_)] = spec.group_rows;
  shape.pieces[static_cast<std::size_t>(pieces_)] = spec.pieces;
  if (context_) {
    std::vector<std::int32_t> context = spec.context_chunks;
    context.push_back(chunk);
    shape.chunk_lists[static_cast<std::size_t>(context_list_)] = std::move(context);
    shape.chunk_lists[static_cast<std::size_t>(first_touched_)] = spec.first_touched;
  }
  if (!exchanged()) return;
  LH_ASSERT(spec.q_to_heads != nullptr, "the shape of a group was not prepared");
  // Send buffers repeat the local rows for each member; no op reads their tokens.
  shape.row_maps[static_cast<std::size_t>(blocked_rows_)] =
      make_row_map({{-1, TokenView::kClean, 0, local_rows * group_size_}});
  shape.exchanges[static_cast<std::size_t>(q_to_heads_)] = spec.q_to_heads;
  shape.exchanges[static_cast<std::size_t>(kv_to_heads_)] = spec.kv_to_heads;
  shape.exchanges[static_cast<std::size_t>(q_to_tokens_)] = spec.q_to_tokens;
  shape.exchanges[static_cast<std::size_t>(kv_to_tokens_)] = spec.kv_to_tokens;
}

}  // namespace longhaul
