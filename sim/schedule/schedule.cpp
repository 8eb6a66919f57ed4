#include "sim/schedule/schedule.h"

#include "sim/core/invariant.h"

namespace longhaul {

const char* to_string(Pass pass) {
  switch (pass) {
    case Pass::kForward:
      return "forward";
    case Pass::kRecompute:
      return "recompute";
    case Pass::kBackward:
      return "backward";
    case Pass::kOptimizer:
      return "optimizer";
  }
  return "";
}

const char* to_string(Function function) {
  switch (function) {
    case Function::kNone:
      return "none";
    case Function::kSplitColumns:
      return "split_columns";
    case Function::kJoinColumns:
      return "join_columns";
    case Function::kEmbedding:
      return "embedding";
    case Function::kEmbeddingBackward:
      return "embedding_backward";
    case Function::kRmsNorm:
      return "rmsnorm";
    case Function::kRmsNormBackward:
      return "rmsnorm_backward";
    case Function::kRope:
      return "rope";
    case Function::kRopeBackward:
      return "rope_backward";
    case Function::kSwiGlu:
      return "swiglu";
    case Function::kSwiGluBackward:
      return "swiglu_backward";
    case Function::kAdd:
      return "add";
    case Function::kAccumulate:
      return "accumulate";
    case Function::kZero:
      return "zero";
    case Function::kGiven:
      return "given";
    case Function::kCast:
      return "cast";
    case Function::kCrossEntropy:
      return "cross_entropy";
  }
  return "";
}

const char* to_string(EagerKernel kernel) {
  switch (kernel) {
    case EagerKernel::kNone:
      return "";
    case EagerKernel::kIndexedRows:
      return "indexed_rows";
    case EagerKernel::kExpandedRows:
      return "expanded_rows";
    case EagerKernel::kPermutedRows:
      return "permuted_rows";
    case EagerKernel::kJoinedSlices:
      return "joined_slices";
    case EagerKernel::kAddedSlice:
      return "added_slice";
    case EagerKernel::kZeros:
      return "zeros";
    case EagerKernel::kCastToFp32:
      return "cast_to_fp32";
    case EagerKernel::kCastToBf16:
      return "cast_to_bf16";
    case EagerKernel::kAddedInFp32:
      return "added_in_fp32";
    case EagerKernel::kMergedPartials:
      return "merged_partials";
  }
  return "";
}

const char* to_string(HostStall stall) {
  switch (stall) {
    case HostStall::kNone:
      return "";
    case HostStall::kReadValues:
      return "read_values";
    case HostStall::kHalfMasks:
      return "half_masks";
    case HostStall::kHalfLogarithms:
      return "half_logarithms";
    case HostStall::kMaskedIndex:
      return "masked_index";
    case HostStall::kMaskedIndices:
      return "masked_indices";
  }
  return "";
}

const char* to_string(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kExchange:
      return "exchange";
  }
  return "";
}

const ShapeSet& Schedule::shape(int rank, std::int32_t chunk) const {
  const RankInfo& info = ranks[static_cast<std::size_t>(rank)];
  LH_ASSERT(chunk >= 0 && static_cast<std::size_t>(chunk) < info.shapes.size(), "rank {} has no chunk {}", rank, chunk);
  const ShapeId id = info.shapes[static_cast<std::size_t>(chunk)];
  LH_ASSERT(id >= 0, "rank {} has no shapes for chunk {}", rank, chunk);
  return shapes[static_cast<std::size_t>(id)];
}

int Schedule::member_index(int rank, GroupRole role) const {
  const GroupId group = ranks[static_cast<std::size_t>(rank)].groups[static_cast<std::size_t>(role)];
  LH_ASSERT(group >= 0, "rank {} has no group of role {}", rank, roles[static_cast<std::size_t>(role)]);
  const std::vector<std::int32_t>& members = groups[static_cast<std::size_t>(group)].members;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i] == rank) return static_cast<int>(i);
  }
  LH_ASSERT(false, "rank {} is not a member of its group {}", rank, group);
  return -1;
}

bool Cursor::next(const Schedule& schedule, OpInstance& instance) {
  const RankInfo& info = schedule.ranks[static_cast<std::size_t>(rank_)];
  const std::vector<Block>& blocks = schedule.programs[static_cast<std::size_t>(info.program)].blocks;
  while (static_cast<std::size_t>(block_) < blocks.size()) {
    const Block& block = blocks[static_cast<std::size_t>(block_)];
    const std::vector<Op>& ops = schedule.segments[static_cast<std::size_t>(block.segment)].ops;
    if (iteration_ >= block.iterations || ops.empty()) {
      ++block_;
      iteration_ = 0;
      index_ = 0;
      continue;
    }
    const Op& op = ops[static_cast<std::size_t>(index_)];
    const std::int16_t iteration = iteration_;
    const std::int16_t index = index_;
    if (static_cast<std::size_t>(++index_) == ops.size()) {
      index_ = 0;
      ++iteration_;
    }
    if (op.guard == Guard::kNotFirstIteration && iteration == 0) continue;
    if (op.guard == Guard::kNotLastIteration && iteration + 1 == block.iterations) continue;
    instance.op = &op;
    instance.shape = block.chunk >= 0 ? &schedule.shape(rank_, block.chunk) : nullptr;
    instance.rank = rank_;
    instance.chunk = block.chunk;
    instance.layer = static_cast<std::int16_t>(block.first_layer + iteration * block.layer_step);
    instance.segment = block.segment;
    instance.index = index;
    return true;
  }
  return false;
}

}  // namespace longhaul
