#include "validate/device/launch_order.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "sim/schedule/agreement.h"
#include "validate/cpu/errors.h"

namespace longhaul {
namespace {

class Ordering {
 public:
  Ordering(const Schedule& schedule, const Programs& programs)
      : schedule_(schedule),
        programs_(programs),
        next_(programs.ranks.size(), 0),
        arrived_(programs.calls.size(), 0),
        counted_(programs.ranks.size(), -1) {
    for (const GroupCall& call : programs.calls) {
      std::int32_t taking = 0;
      for (std::size_t m = 0; m < call.positions.size(); ++m) {
        taking += programs.op(member(call, m), call.positions[m]).empty ? 0 : 1;
      }
      taking_.push_back(taking);
    }
  }

  std::vector<Launch> run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t rank = 0; rank < next_.size(); ++rank) moved = advance(static_cast<std::int32_t>(rank)) || moved;
    }
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      if (static_cast<std::size_t>(next_[rank]) < programs_.ranks[rank].size()) throw_deadlock();
    }
    return std::move(order_);
  }

 private:
  std::int32_t member(const GroupCall& call, std::size_t m) const {
    return schedule_.groups[static_cast<std::size_t>(call.group)].members[m];
  }

  // Launches the next op of a rank if it may be; of a collective, for all members once the last of them is there.
  bool advance(std::int32_t rank) {
    std::int32_t& position = next_[static_cast<std::size_t>(rank)];
    if (static_cast<std::size_t>(position) == programs_.ranks[static_cast<std::size_t>(rank)].size()) return false;
    const ProgramOp& op = programs_.op(rank, position);
    if (op.call < 0 || op.empty) {
      order_.push_back({-1, {{rank, position}}});
      ++position;
      return true;
    }
    if (counted_[static_cast<std::size_t>(rank)] == position) return false;
    counted_[static_cast<std::size_t>(rank)] = position;
    const auto index = static_cast<std::size_t>(op.call);
    if (++arrived_[index] < taking_[index]) return false;
    const GroupCall& call = programs_.calls[index];
    Launch launch;
    launch.call = op.call;
    for (std::size_t m = 0; m < call.positions.size(); ++m) {
      const std::int32_t other = member(call, m);
      if (programs_.op(other, call.positions[m]).empty) continue;
      launch.places.push_back({other, call.positions[m]});
      ++next_[static_cast<std::size_t>(other)];
    }
    order_.push_back(std::move(launch));
    return true;
  }

  [[noreturn]] void throw_deadlock() const {
    std::vector<std::string> waiting;
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      if (static_cast<std::size_t>(next_[rank]) == programs_.ranks[rank].size()) continue;
      const ProgramOp& op = programs_.op(static_cast<std::int32_t>(rank), next_[rank]);
      const GroupCall& call = programs_.calls[static_cast<std::size_t>(op.call)];
      waiting.push_back(fmt::format("{} waits at call {} of group {}", place(op.at), call.number, call.group));
    }
    throw DeadlockError(fmt::format("no common launch order:\n{}", fmt::join(waiting, "\n")), waiting);
  }

  const Schedule& schedule_;
  const Programs& programs_;
  std::vector<std::int32_t> next_;     // by rank: position to be launched
  std::vector<std::int32_t> arrived_;  // by call: members whose next op it is
  std::vector<std::int32_t> taking_;   // by call: members for which it is not empty
  std::vector<std::int32_t> counted_;  // by rank: position of the collective that has been counted as arrived
  std::vector<Launch> order_;
};

}  // namespace

std::vector<Launch> launch_order(const Schedule& schedule, const Programs& programs) {
  return Ordering(schedule, programs).run();
}

}  // namespace longhaul
