// Ops of one rank as kernel calls on its memory.
//
// Kernels take tight rows; what a schedule names otherwise (row lists, columns of wider rows, several key/value
// operands, results that are added) goes through scratch memory of the op's stream by copies that are part of the op
// and of its time. Keys and values that no piece names are left out: kernels multiply masked values by zero, which
// unwritten memory would not survive. A pure function of schedule and arena plan; needs no device.
#pragma once

#include <deque>
#include <vector>

#include "validate/device/bound_view.h"
#include "validate/device/op_mapping.h"

namespace longhaul {

struct LoweredOp {
  MappedKernel kernel = MappedKernel::kFill;
  std::vector<DeviceCall> calls;
};

// One message of a collective: what a member sends another, as it lies at both ends.
struct Message {
  std::int32_t from = 0, to = 0;  // ranks
  Rows send, receive;
  bool accumulate = false;
};
// Messages that are added up: every receiver gets the sum over `sends`, in fp32, rounded once.
struct Reduction {
  std::vector<std::int32_t> from;  // ranks, in member order
  std::vector<Rows> sends;
  std::vector<std::int32_t> to;
  std::vector<Rows> receives;
};
// A collective at all members that take part. Ring collectives keep their parts for libraries that have such calls.
struct LoweredCall {
  CollectiveKind kind = CollectiveKind::kExchange;
  GroupId group = -1;
  std::vector<std::int32_t> ranks;  // all members of the group
  struct Part {
    std::vector<Rows> sends, receives;  // by member; empty rows where a member has none
  };
  std::vector<Part> parts;            // ring collectives
  std::vector<Message> messages;      // exchange; of all-gather and broadcast what they amount to, self-copies included
  std::vector<Reduction> reductions;  // all-reduce and reduce-scatter
};

class RankLowering {
 public:
  // References must outlive it.
  RankLowering(const Schedule& schedule, const Programs& programs, const ArenaPlan& arena, std::int32_t rank);
  RankLowering(const RankLowering&) = delete;
  RankLowering& operator=(const RankLowering&) = delete;

  // Any op but a collective, not empty. Throws DeviceFault (kUnsupported), ScheduleError.
  LoweredOp lower(std::int32_t position);

  ViewBinder& binder() { return binder_; }
  const ConstantPool& constants() const { return constants_; }
  // Bytes that ops of a stream need at most; `reserve` raises it.
  std::int64_t scratch_bytes(StreamId stream) const { return scratch_bytes_[static_cast<std::size_t>(stream)]; }
  void reserve_scratch(StreamId stream, std::int64_t bytes);
  // fp32 losses that the ops lowered so far write, one after the other.
  std::int64_t loss_rows() const { return loss_rows_; }

 private:
  friend class OpLowering;
  const Schedule& schedule_;
  const Programs& programs_;
  std::int32_t rank_;
  ConstantPool constants_;
  ViewBinder binder_;
  std::vector<std::int64_t> scratch_bytes_;  // by stream
  std::int64_t loss_rows_ = 0;
};

// A call of `programs.calls`. `ranks`: the lowerings of all ranks, whose constants it may add to.
LoweredCall lower_call(const Schedule& schedule, const Programs& programs, std::int32_t call,
                       std::deque<RankLowering>& ranks);

}  // namespace longhaul
