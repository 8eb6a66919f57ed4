#include "validate/device/lowering.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/core/invariant.h"
#include "sim/schedule/agreement.h"
#include "validate/cpu/errors.h"
#include "validate/device/op_lowering.h"

namespace longhaul {

RankLowering::RankLowering(const Schedule& schedule, const Programs& programs, const ArenaPlan& arena,
                           std::int32_t rank)
    : schedule_(schedule),
      programs_(programs),
      rank_(rank),
      binder_(schedule, arena, constants_),
      scratch_bytes_(static_cast<std::size_t>(programs.streams), 0) {}

void RankLowering::reserve_scratch(StreamId stream, std::int64_t bytes) {
  std::int64_t& most = scratch_bytes_[static_cast<std::size_t>(stream)];
  most = std::max(most, bytes);
}

LoweredOp RankLowering::lower(std::int32_t position) {
  const Op& op = *programs_.op(rank_, position).at.op;
  LoweredOp lowered;
  lowered.kernel = require_kernel(op, rank_, position);
  OpLowering(*this, position, lowered.calls).run(lowered.kernel);
  return lowered;
}

OpLowering::OpLowering(RankLowering& rank, std::int32_t position, std::vector<DeviceCall>& calls)
    : rank_(rank),
      schedule_(rank.schedule_),
      at_(rank.programs_.op(rank.rank_, position).at),
      position_(position),
      calls_(calls) {}

void OpLowering::run(MappedKernel kernel) {
  switch (kernel) {
    case MappedKernel::kGemm:
      gemm();
      break;
    case MappedKernel::kAttentionForward:
      attention_forward();
      break;
    case MappedKernel::kAttentionBackward:
      attention_backward();
      break;
    case MappedKernel::kMerge:
      merge();
      break;
    case MappedKernel::kEmbedding:
      embedding();
      break;
    case MappedKernel::kEmbeddingBackward:
      embedding_backward();
      break;
    case MappedKernel::kRmsNorm:
      rms_norm();
      break;
    case MappedKernel::kRmsNormBackward:
      rms_norm_backward();
      break;
    case MappedKernel::kRope:
      rope();
      break;
    case MappedKernel::kSwiglu:
      swiglu();
      break;
    case MappedKernel::kSwigluBackward:
      swiglu_backward();
      break;
    case MappedKernel::kAdd:
      add();
      break;
    case MappedKernel::kCopyRows:
      move();
      break;
    case MappedKernel::kFill:
      fill();
      break;
    case MappedKernel::kCrossEntropy:
      cross_entropy();
      break;
    case MappedKernel::kAdamw:
      adamw();
      break;
    case MappedKernel::kGiven:
    case MappedKernel::kTransport:
      fail(fmt::format("`{}` is not lowered to kernel calls", to_string(kernel)));
  }
  rank_.reserve_scratch(op().stream, scratch_used_);
}

void OpLowering::fail(const std::string& what) const { throw ScheduleError(fmt::format("{}: {}", place(at_), what)); }

Rows OpLowering::operand(std::size_t index) const { return rank_.binder_.rows(at_, position_, op().operands[index]); }

void OpLowering::require_operands(std::size_t count) const {
  if (op().operands.size() == count) return;
  fail(fmt::format("{} needs {} operands, has {}", to_string(op().function), count, op().operands.size()));
}

void OpLowering::require_equal(const Rows& a, const Rows& b) const {
  if (a.rows == b.rows && a.columns == b.columns) return;
  fail(fmt::format("operands of {} x {} and {} x {} differ", a.rows, a.columns, b.rows, b.columns));
}

Address OpLowering::scratch(std::int64_t bytes) {
  const Address address{MemoryPart::kScratch, scratch_used_};
  scratch_used_ += (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  return address;
}

Rows OpLowering::scratch_rows(std::int64_t rows, std::int64_t columns, ElementType type) {
  return {scratch(rows * columns * element_bytes(type)), type, rows, columns, columns, kNoIndex};
}

void OpLowering::copy(const Rows& from, const Rows& to, bool accumulate) {
  LH_ASSERT(from.rows == to.rows && from.columns == to.columns, "copies {} x {} to {} x {}", from.rows, from.columns,
            to.rows, to.columns);
  if (from.rows > 0 && from.columns > 0) calls_.emplace_back(CopyRowsCall{from, to, accumulate});
}

Address OpLowering::tight(const Rows& rows) {
  if (rows.tight()) return rows.base;
  const Rows packed = scratch_rows(rows.rows, rows.columns, rows.type);
  copy(rows, packed, false);
  return packed.base;
}

OpLowering::Output OpLowering::output(const View& view, const Rows& rows) {
  if (view.access == Access::kRead) fail("an operand that is written is a view that is read");
  Output out;
  out.target = rows;
  out.accumulate = view.access == Access::kAccumulate;
  out.direct = rows.tight() && !out.accumulate;
  out.made = out.direct ? rows : scratch_rows(rows.rows, rows.columns, rows.type);
  return out;
}

void OpLowering::finish(const Output& out) {
  if (!out.direct) copy(out.made, out.target, out.accumulate);
}

void OpLowering::gemm() {
  const GemmShape shape = gemm_shape(schedule_, at_);
  const View& c_view = op().operands[2];
  const Rows c = operand(2);
  const bool accumulate = c_view.access == Access::kAccumulate;
  if (shape.k == 0) {
    calls_.emplace_back(FillRowsCall{c, 0.0F});
    return;
  }
  const auto input = [&](std::size_t index) {
    const Rows rows = operand(index);
    if (rows.type != ElementType::kBf16) fail("a GEMM operand that is not bf16");
    if (rows.dense()) return rows;
    Rows packed = scratch_rows(rows.rows, rows.columns, rows.type);
    copy(rows, packed, false);
    return packed;
  };
  const Rows a = input(0);
  const Rows b = input(1);
  Rows made = c;
  if (!c.dense()) made = scratch_rows(c.rows, c.columns, c.type);
  GemmCall call;
  call.problem = {
      .m = shape.m, .n = shape.n, .k = shape.k, .transpose_a = op().transpose_a, .transpose_b = op().transpose_b};
  call.problem.a_stride = a.stride;
  call.problem.b_stride = b.stride;
  call.problem.c_stride = made.stride;
  call.problem.output = made.type == ElementType::kBf16 ? GemmOutput::kBf16 : GemmOutput::kFp32;
  call.problem.accumulate = accumulate && c.dense();
  call.a = a.base;
  call.b = b.base;
  call.c = made.base;
  calls_.emplace_back(call);
  if (!c.dense()) copy(made, c, accumulate);
}

const char* kernel_name(const DeviceCall& call) {
  struct Namer {
    const char* operator()(const CopyRowsCall&) const { return "copy_rows"; }
    const char* operator()(const FillRowsCall&) const { return "fill"; }
    const char* operator()(const SumRowsCall&) const { return "sum_rows"; }
    const char* operator()(const GemmCall&) const { return "gemm"; }
    const char* operator()(const RmsNormCall&) const { return "rms_norm"; }
    const char* operator()(const RmsScaleCall&) const { return "rms_scale"; }
    const char* operator()(const RmsNormBackwardCall&) const { return "rms_norm_backward"; }
    const char* operator()(const RopeCall&) const { return "rope"; }
    const char* operator()(const SwigluCall&) const { return "swiglu"; }
    const char* operator()(const SwigluBackwardCall&) const { return "swiglu_backward"; }
    const char* operator()(const CrossEntropyCall&) const { return "cross_entropy"; }
    const char* operator()(const EmbeddingBackwardCall&) const { return "embedding_backward"; }
    const char* operator()(const AttentionForwardCall&) const { return "attention_forward"; }
    const char* operator()(const AttentionBackwardCall&) const { return "attention_backward"; }
    const char* operator()(const MergeCall&) const { return "merge"; }
    const char* operator()(const AdamwCall&) const { return "adamw"; }
  };
  return std::visit(Namer{}, call);
}

}  // namespace longhaul
