// The calls of groups: every rank issues its calls in program order and waits there for the other members. If all come
// to the end, the calls have one common order on all ranks, and no execution that honours streams and events can stick:
// every op waits only for what this order has already run. An empty call waits for nobody.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "sim/schedule/agreement.h"
#include "sim/schedule/check_parts.h"

namespace longhaul {
namespace {

struct Call {
  std::vector<OpInstance> members;  // op nullptr: not here yet
  std::vector<bool> waits;          // member stands at this call
  std::size_t arrived = 0;
};

struct GroupState {
  std::deque<Call> open;
  std::int64_t completed = 0;
  std::vector<std::int64_t> issued;  // by member
};

class CallCheck {
 public:
  CallCheck(const Schedule& schedule, Violations& violations)
      : schedule_(schedule), violations_(violations), groups_(schedule.groups.size()) {
    for (std::size_t g = 0; g < groups_.size(); ++g) groups_[g].issued.resize(schedule.groups[g].members.size(), 0);
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      cursors_.emplace_back(static_cast<std::int32_t>(rank));
      going_.push_back(static_cast<std::int32_t>(rank));
    }
    ended_.resize(schedule.ranks.size(), false);
  }

  void run() {
    while (!going_.empty()) {
      const std::int32_t rank = going_.back();
      going_.pop_back();
      advance(rank);
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      for (std::size_t k = 0; k < groups_[g].open.size(); ++k) report_open(g, k);
    }
  }

 private:
  const std::vector<std::int32_t>& members(std::size_t group) const { return schedule_.groups[group].members; }

  // To the rank's next call that waits, or its end.
  void advance(std::int32_t rank) {
    OpInstance at;
    while (cursors_[static_cast<std::size_t>(rank)].next(schedule_, at)) {
      if (at.op->kind == OpKind::kCollective && !join(at)) return;
    }
    ended_[static_cast<std::size_t>(rank)] = true;
  }

  // False if the rank waits here now.
  bool join(const OpInstance& at) {
    const GroupId id = schedule_.ranks[static_cast<std::size_t>(at.rank)].groups[static_cast<std::size_t>(at.op->role)];
    if (id < 0) {
      violations_.add([&] { return fmt::format("{}: the rank has no group of that role", place(at)); });
      return true;
    }
    const auto group = static_cast<std::size_t>(id);
    GroupState& state = groups_[group];
    const auto member = static_cast<std::size_t>(schedule_.member_index(at.rank, at.op->role));
    const auto number = static_cast<std::size_t>(state.issued[member]++ - state.completed);
    while (state.open.size() <= number) {
      Call& added = state.open.emplace_back();
      added.members.resize(members(group).size());
      added.waits.resize(members(group).size(), false);
    }
    Call& call = state.open[number];
    call.members[member] = at;
    if (++call.arrived < call.members.size()) {
      call.waits[member] = !is_empty(schedule_, at);
      return !call.waits[member];
    }
    compare(group, call);
    for (std::size_t m = 0; m < call.waits.size(); ++m) {
      if (call.waits[m]) going_.push_back(members(group)[m]);
      call.waits[m] = false;
    }
    while (!state.open.empty() && state.open.front().arrived == state.open.front().members.size()) {
      state.open.pop_front();
      ++state.completed;
    }
    return true;
  }

  // Members agree. Sizes do not depend on the layer: what agreed at one place agrees wherever the same templates and
  // shapes meet again.
  void compare(std::size_t group, const Call& call) {
    std::vector<std::int32_t> met;
    met.reserve(3 * call.members.size());
    for (const OpInstance& at : call.members) {
      const RankInfo& info = schedule_.ranks[static_cast<std::size_t>(at.rank)];
      met.push_back(at.segment);
      met.push_back(at.index);
      met.push_back(at.chunk < 0 ? -1 : info.shapes[static_cast<std::size_t>(at.chunk)]);
    }
    const OpInstance& first = call.members.front();
    std::vector<std::int32_t>& agreed = agreed_[{group, first.segment, first.index, first.chunk}];
    if (agreed == met) return;
    const std::vector<std::string> differences = collective_differences(schedule_, call.members);
    for (const std::string& difference : differences) violations_.add([&] { return difference; });
    if (!differences.empty()) return;
    if (first.op->collective != CollectiveKind::kExchange) {
      const auto empty = std::count_if(call.members.begin(), call.members.end(),
                                       [&](const OpInstance& at) { return is_empty(schedule_, at); });
      if (empty != 0 && static_cast<std::size_t>(empty) != call.members.size()) {
        violations_.add([&] { return fmt::format("{}: empty for some members of the group only", place(first)); });
        return;
      }
    }
    agreed = std::move(met);
  }

  // Who stands at an open call, and who has not come.
  void report_open(std::size_t group, std::size_t index) {
    const GroupState& state = groups_[group];
    const Call& call = state.open[index];
    if (call.arrived == call.members.size()) return;
    const auto present =
        std::find_if(call.members.begin(), call.members.end(), [](const OpInstance& at) { return at.op != nullptr; });
    violations_.add([&] {
      std::string missing;
      for (std::size_t m = 0; m < call.members.size(); ++m) {
        if (call.members[m].op != nullptr) continue;
        const std::int32_t rank = members(group)[m];
        missing += fmt::format("{}rank {}{}", missing.empty() ? "" : ", ", rank,
                               ended_[static_cast<std::size_t>(rank)] ? " (has ended)" : stands(rank));
      }
      return fmt::format("{}: call {} of group {} (role {}) never meets {}", place(*present),
                         state.completed + static_cast<std::int64_t>(index), group,
                         schedule_.roles[static_cast<std::size_t>(present->op->role)], missing);
    });
  }

  std::string stands(std::int32_t rank) const {
    for (const GroupState& state : groups_) {
      for (const Call& call : state.open) {
        for (std::size_t m = 0; m < call.members.size(); ++m) {
          const OpInstance& at = call.members[m];
          if (call.waits[m] && at.rank == rank) {
            return fmt::format(" (waits at `{}`, layer {}, chunk {})", at.op->label, at.layer, at.chunk);
          }
        }
      }
    }
    return "";
  }

  const Schedule& schedule_;
  Violations& violations_;
  std::vector<Cursor> cursors_;      // by rank
  std::vector<bool> ended_;          // by rank
  std::vector<std::int32_t> going_;  // ranks that may go on
  std::vector<GroupState> groups_;
  // By (group, segment, index, chunk of the first member): templates and shapes of all members that agreed last.
  std::map<std::tuple<std::size_t, SegmentId, std::int16_t, std::int32_t>, std::vector<std::int32_t>> agreed_;
};

}  // namespace

void check_calls(const Schedule& schedule, Violations& violations) { CallCheck(schedule, violations).run(); }

}  // namespace longhaul
