// Memory of ranks: what ops acquire, need, write and release.
#include "sim/core/invariant.h"
#include "sim/executor/engine.h"

namespace longhaul {

void Engine::acquire(std::int32_t rank, std::uint64_t key, std::int64_t bytes, std::uint8_t category, const Op& op) {
  RankMemory& memory = memory_[static_cast<std::size_t>(rank)];
  const bool written = bytes == 0;  // no values: there is nothing that a read could meet unwritten
  LH_ASSERT(memory.tensors.insert(key, written), "rank {} `{}` acquires a tensor twice ({})", rank, op.label,
            describe_key(key));
  memory.hold(bytes, category);
}

void Engine::release(std::int32_t rank, std::uint64_t key, std::int64_t bytes, std::uint8_t category, const Op& op) {
  RankMemory& memory = memory_[static_cast<std::size_t>(rank)];
  LH_ASSERT(memory.tensors.erase(key), "rank {} `{}` releases a tensor that it does not hold ({})", rank, op.label,
            describe_key(key));
  memory.drop(bytes, category);
}

// At the start of an op: storage appears; what it reads is there.
void Engine::begin_memory(std::int32_t rank, const Iteration& pass, std::size_t index, Time now) {
  const OpCode& code = pass.code->ops[index];
  const OpCost& cost = pass.costs->ops[index];
  if (code.listed) {
    begin_listed(rank, pass, index, now);
  } else {
    for (std::uint32_t i = code.acquire_begin; i < code.acquire_begin + code.acquires; ++i) {
      const TensorUse& use = pass.code->acquires[i];
      acquire(rank, use.key(pass.layer, pass.chunk), pass.costs->acquire_bytes[i], use.category, *code.op);
    }
    if (!cost.empty) {
      const TensorTable& tensors = memory_[static_cast<std::size_t>(rank)].tensors;
      for (std::uint32_t i = code.check_begin; i < code.check_begin + code.checks; ++i) {
        const TensorUse& use = pass.code->checks[i];
        if (use.part != 0 && ((cost.send_parts >> (use.part - 1)) & 1U) == 0) continue;
        const std::uint64_t key = use.key(pass.layer, pass.chunk);
        LH_ASSERT(tensors.is_written(key), "{} reads {}, which is not written", place(rank, pass, index),
                  describe_key(key));
      }
    }
  }
  if (code.acquires == 0) return;
  memory_[static_cast<std::size_t>(rank)].note_peak(now, totals(rank));
  report_memory(rank, now);
}

// At the end of an op: what it wrote may be read; storage goes.
void Engine::end_memory(std::int32_t rank, const Iteration& pass, std::size_t index, Time now) {
  const OpCode& code = pass.code->ops[index];
  const OpCost& cost = pass.costs->ops[index];
  if (code.listed) {
    end_listed(rank, pass, index, now);
  } else {
    TensorTable& tensors = memory_[static_cast<std::size_t>(rank)].tensors;
    for (std::uint32_t i = code.need_begin; i < code.need_begin + code.needs; ++i) {
      const TensorUse& use = pass.code->needs[i];
      if (use.part != 0 && ((cost.receive_parts >> (use.part - 1)) & 1U) == 0) continue;
      const std::uint64_t key = use.key(pass.layer, pass.chunk);
      LH_ASSERT(tensors.mark_written(key) || cost.empty, "{} writes {}, which is not held", place(rank, pass, index),
                describe_key(key));
    }
    for (std::uint32_t i = code.release_begin; i < code.release_begin + code.releases; ++i) {
      const TensorUse& use = pass.code->releases[i];
      release(rank, use.key(pass.layer, pass.chunk), pass.costs->release_bytes[i], use.category, *code.op);
    }
  }
  if (code.releases > 0) report_memory(rank, now);
}

namespace {

// Calls `visit(id, view)` for every tensor of an op whose references may stand for chunk lists.
template <class Visit>
void visit_views(const OpInstance& at, std::vector<TensorId>& ids, Visit visit) {
  const auto all = [&](const View& view) {
    if (view.tensor.kind < 0) return;
    ids.clear();
    resolve_all(at, view.tensor, ids);
    for (const TensorId& id : ids) visit(id, view);
  };
  for (const View& view : at.op->operands) all(view);
  for (const View* view : {&at.op->q, &at.op->o, &at.op->lse, &at.op->q_gradient, &at.op->o_gradient}) all(*view);
  for (const ExpandedOperand& operand : expand_operands(at)) {
    for (const View* view : {&operand.operand->key, &operand.operand->value, &operand.operand->key_gradient,
                             &operand.operand->value_gradient}) {
      if (view->tensor.kind >= 0) visit(resolve(at, view->tensor, operand.chunk), *view);
    }
  }
}

}  // namespace

void Engine::begin_listed(std::int32_t rank, const Iteration& pass, std::size_t index, Time) {
  const OpInstance at = instance(rank, pass, index);
  for (const TensorRef& ref : at.op->acquire) {
    scratch_ids_.clear();
    resolve_all(at, ref, scratch_ids_);
    const std::uint8_t category = make_use(*schedule_, ref).category;
    for (const TensorId& id : scratch_ids_)
      acquire(rank, id.key(), tensor_bytes(*schedule_, rank, id), category, *at.op);
  }
  if (pass.costs->ops[index].empty) return;
  const TensorTable& tensors = memory_[static_cast<std::size_t>(rank)].tensors;
  visit_views(at, scratch_ids_, [&](const TensorId& id, const View& view) {
    if (view.access == Access::kWrite) return;
    LH_ASSERT(tensors.is_written(id.key()), "{} reads {}, which is not written", place(rank, pass, index),
              describe_key(id.key()));
  });
}

void Engine::end_listed(std::int32_t rank, const Iteration& pass, std::size_t index, Time) {
  const OpInstance at = instance(rank, pass, index);
  const bool empty = pass.costs->ops[index].empty;
  TensorTable& tensors = memory_[static_cast<std::size_t>(rank)].tensors;
  visit_views(at, scratch_ids_, [&](const TensorId& id, const View& view) {
    if (view.access == Access::kRead) return;
    LH_ASSERT(tensors.mark_written(id.key()) || empty, "{} writes {}, which is not held", place(rank, pass, index),
              describe_key(id.key()));
  });
  for (const TensorRef& ref : at.op->release) {
    scratch_ids_.clear();
    resolve_all(at, ref, scratch_ids_);
    const std::uint8_t category = make_use(*schedule_, ref).category;
    for (const TensorId& id : scratch_ids_)
      release(rank, id.key(), tensor_bytes(*schedule_, rank, id), category, *at.op);
  }
}

void Engine::report_memory(std::int32_t rank, Time now) {
  if (!ranks_[static_cast<std::size_t>(rank)].traced) return;
  const RankMemory& memory = memory_[static_cast<std::size_t>(rank)];
  options_->sink->memory(rank, now, memory.total(), memory.levels());
}

// "q layer 3 chunk 0 instance 1" out of a key.
std::string Engine::describe_key(std::uint64_t key) const {
  const auto kind = static_cast<std::size_t>((key >> 48) & 0xfffU);
  const auto layer = static_cast<std::int16_t>(static_cast<std::uint16_t>(key >> 24));
  const auto chunk = static_cast<std::uint32_t>(key & 0xffffffU);
  std::string text = kind < schedule_->tensors.size() ? "`" + schedule_->tensors[kind].name + "`" : "an unknown tensor";
  if (layer != kNoLayer) text += fmt::format(" layer {}", layer);
  if (chunk != 0xffffffU) text += fmt::format(" chunk {}", chunk);
  return text + fmt::format(" instance {}", (key >> 40) & 0xffU);
}

}  // namespace longhaul
