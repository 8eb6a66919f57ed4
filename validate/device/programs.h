// The programs of all ranks written out, with what CUDA's streams and events order among the ops of one rank.
//
// An op starts after the op before it on its stream has ended and after every event that it waits for has been
// recorded; a wait names the latest record of its slot before it in the program, and none if there is none. Calls: the
// k-th collectives of all members of a group belong together. To 10^7 ops in all.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/schedule/schedule.h"

namespace longhaul {

struct ProgramOp {
  OpInstance at;
  bool empty = false;               // nothing is launched; waits, record, acquire and release hold
  std::vector<std::int32_t> after;  // earlier positions of the same rank, ascending, each once
  std::int32_t call = -1;           // collectives: index into Programs::calls
};

struct GroupCall {
  GroupId group = 0;
  std::int32_t number = 0;              // of the group's calls
  std::vector<std::int32_t> positions;  // by member
};

struct Programs {
  std::vector<std::vector<ProgramOp>> ranks;  // in program order
  std::vector<GroupCall> calls;
  std::int32_t streams = 0;

  const ProgramOp& op(std::int32_t rank, std::int32_t position) const {
    return ranks[static_cast<std::size_t>(rank)][static_cast<std::size_t>(position)];
  }
};

// Throws ScheduleError (validate/cpu/errors.h) for an unknown stream or event slot, a rank without the group that a
// collective names, members that do not agree (agreement.h), a member that lacks a call, ring collectives that are
// empty for some members only; LimitError beyond `max_ops`.
Programs unroll(const Schedule& schedule, std::int64_t max_ops = 10'000'000);

// Whether one op of a rank is known to have ended before another starts, by its streams and events alone (vector
// clocks). Order that arises through other ranks does not count.
class HappensBefore {
 public:
  HappensBefore(const std::vector<ProgramOp>& ops, std::int32_t streams);
  // False for earlier == later.
  bool operator()(std::int32_t earlier, std::int32_t later) const;

 private:
  std::size_t streams_;
  std::vector<std::int32_t> stream_, number_;  // of each op: its stream, and its place there from 1
  std::vector<std::int32_t> clocks_;           // op x stream: ops of that stream that have ended when it starts
};

}  // namespace longhaul
