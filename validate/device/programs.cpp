#include "validate/device/programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "sim/core/error.h"
#include "sim/schedule/agreement.h"
#include "validate/cpu/errors.h"

namespace longhaul {
namespace {

constexpr std::int32_t kNone = -1;

class Unroller {
 public:
  Unroller(const Schedule& schedule, std::int64_t max_ops) : schedule_(schedule), left_(max_ops) {
    programs_.streams = schedule.streams();
    programs_.ranks.resize(schedule.ranks.size());
    calls_of_.resize(schedule.groups.size());
    issued_.resize(schedule.groups.size());
  }

  Programs run() {
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank) unroll_rank(static_cast<std::int32_t>(rank));
    for (const GroupCall& call : programs_.calls) check_call(call);
    return std::move(programs_);
  }

 private:
  void unroll_rank(std::int32_t rank) {
    std::vector<ProgramOp>& ops = programs_.ranks[static_cast<std::size_t>(rank)];
    std::vector<std::int32_t> stream_tail(static_cast<std::size_t>(programs_.streams), kNone);
    std::array<std::int32_t, 128> recorded;  // by event slot
    recorded.fill(kNone);
    Cursor cursor(rank);
    OpInstance at;
    while (cursor.next(schedule_, at)) {
      if (left_-- <= 0) throw LimitError("the schedule has more ops than the device executor writes out");
      const auto position = static_cast<std::int32_t>(ops.size());
      ProgramOp next;
      next.at = at;
      next.empty = is_empty(schedule_, at);
      const Op& op = *at.op;
      if (op.stream < 0 || op.stream >= programs_.streams) {
        throw ScheduleError(fmt::format("{}: no stream {}", place(at), op.stream));
      }
      next.after.push_back(std::exchange(stream_tail[static_cast<std::size_t>(op.stream)], position));
      for (const EventSlot slot : op.waits) {
        if (slot < 0) throw ScheduleError(fmt::format("{}: waits for event slot {}", place(at), slot));
        next.after.push_back(recorded[static_cast<std::size_t>(slot)]);
      }
      if (op.record != kNoEvent) recorded[static_cast<std::size_t>(op.record)] = position;
      std::sort(next.after.begin(), next.after.end());
      next.after.erase(std::unique(next.after.begin(), next.after.end()), next.after.end());
      if (next.after.front() == kNone) next.after.erase(next.after.begin());
      if (op.kind == OpKind::kCollective) next.call = join_call(at, position);
      ops.push_back(std::move(next));
    }
  }

  std::int32_t join_call(const OpInstance& at, std::int32_t position) {
    const RankInfo& info = schedule_.ranks[static_cast<std::size_t>(at.rank)];
    const auto role = static_cast<std::size_t>(at.op->role);
    const GroupId group = role < info.groups.size() ? info.groups[role] : -1;
    if (group < 0) throw ScheduleError(fmt::format("{}: the rank has no group of that role", place(at)));
    const std::size_t members = schedule_.groups[static_cast<std::size_t>(group)].members.size();
    const auto member = static_cast<std::size_t>(schedule_.member_index(at.rank, at.op->role));
    std::vector<std::int32_t>& sequence = calls_of_[static_cast<std::size_t>(group)];
    std::vector<std::size_t>& issued = issued_[static_cast<std::size_t>(group)];
    issued.resize(members, 0);
    const std::size_t number = issued[member]++;
    if (number == sequence.size()) {
      GroupCall call;
      call.group = group;
      call.number = static_cast<std::int32_t>(number);
      call.positions.assign(members, kNone);
      sequence.push_back(static_cast<std::int32_t>(programs_.calls.size()));
      programs_.calls.push_back(std::move(call));
    }
    programs_.calls[static_cast<std::size_t>(sequence[number])].positions[member] = position;
    return sequence[number];
  }

  void check_call(const GroupCall& call) const {
    const std::vector<std::int32_t>& members = schedule_.groups[static_cast<std::size_t>(call.group)].members;
    std::vector<OpInstance> instances;
    std::size_t empty = 0;
    for (std::size_t m = 0; m < members.size(); ++m) {
      if (call.positions[m] == kNone) {
        throw ScheduleError(
            fmt::format("call {} of group {}: rank {} has no such call", call.number, call.group, members[m]));
      }
      const ProgramOp& op = programs_.op(members[m], call.positions[m]);
      instances.push_back(op.at);
      empty += op.empty ? 1 : 0;
    }
    const std::vector<std::string> differences = collective_differences(schedule_, instances);
    if (!differences.empty()) throw ScheduleError(differences.front());
    const bool ring = instances.front().op->collective != CollectiveKind::kExchange;
    if (ring && empty != 0 && empty != members.size()) {
      throw ScheduleError(fmt::format("{}: empty for some members of the group only", place(instances.front())));
    }
  }

  const Schedule& schedule_;
  std::int64_t left_;
  Programs programs_;
  std::vector<std::vector<std::int32_t>> calls_of_;  // by group: indices into calls, by sequence number
  std::vector<std::vector<std::size_t>> issued_;     // by group, member: calls so far
};

}  // namespace

Programs unroll(const Schedule& schedule, std::int64_t max_ops) { return Unroller(schedule, max_ops).run(); }

HappensBefore::HappensBefore(const std::vector<ProgramOp>& ops, std::int32_t streams)
    : streams_(static_cast<std::size_t>(streams)) {
  clocks_.assign(ops.size() * streams_, 0);
  std::vector<std::int32_t> issued(streams_, 0);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    std::int32_t* clock = clocks_.data() + i * streams_;
    for (const std::int32_t earlier : ops[i].after) {
      const auto e = static_cast<std::size_t>(earlier);
      const std::int32_t* known = clocks_.data() + e * streams_;
      for (std::size_t s = 0; s < streams_; ++s) clock[s] = std::max(clock[s], known[s]);
      std::int32_t& own = clock[static_cast<std::size_t>(stream_[e])];
      own = std::max(own, number_[e]);
    }
    const auto stream = static_cast<std::size_t>(ops[i].at.op->stream);
    stream_.push_back(static_cast<std::int32_t>(stream));
    number_.push_back(++issued[stream]);
  }
}

bool HappensBefore::operator()(std::int32_t earlier, std::int32_t later) const {
  const auto e = static_cast<std::size_t>(earlier);
  const auto l = static_cast<std::size_t>(later);
  return clocks_[l * streams_ + static_cast<std::size_t>(stream_[e])] >= number_[e];
}

}  // namespace longhaul
