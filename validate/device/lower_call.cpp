// Collectives as messages and reductions between the memories of ranks.
#include <fmt/format.h>

#include <utility>

#include "sim/core/invariant.h"
#include "sim/schedule/agreement.h"
#include "validate/cpu/errors.h"
#include "validate/device/lowering.h"

namespace longhaul {
namespace {

class CallLowering {
 public:
  CallLowering(const Schedule& schedule, const Programs& programs, std::int32_t call, std::deque<RankLowering>& ranks)
      : call_(programs.calls[static_cast<std::size_t>(call)]), ranks_(ranks) {
    lowered_.group = call_.group;
    lowered_.ranks = schedule.groups[static_cast<std::size_t>(call_.group)].members;
    for (std::size_t m = 0; m < lowered_.ranks.size(); ++m) {
      instances_.push_back(programs.op(lowered_.ranks[m], call_.positions[m]).at);
    }
    lowered_.kind = instances_.front().op->collective;
  }

  LoweredCall run() {
    if (lowered_.kind == CollectiveKind::kExchange) {
      exchange();
    } else {
      for (std::size_t part = 0; part < instances_.front().op->parts.size(); ++part) ring(part);
    }
    return std::move(lowered_);
  }

 private:
  ViewBinder& binder(std::size_t member) { return ranks_[static_cast<std::size_t>(lowered_.ranks[member])].binder(); }
  const CollectivePart& part_of(std::size_t member, std::size_t part) const {
    return instances_[member].op->parts[part];
  }
  Rows bind(std::size_t member, const View& view) {
    return binder(member).rows(instances_[member], call_.positions[member], view);
  }

  void exchange() {
    const ExchangeTransfers transfers = exchange_transfers(instances_);
    const std::size_t members = instances_.size();
    for (std::size_t pair = 0; pair < members * members; ++pair) {  // by sender: additions come in member order
      const std::size_t from = pair / members;
      const std::size_t to = pair % members;
      for (std::size_t k = 0; k < transfers.sends[pair].size(); ++k) {
        const PeerTransfer& send = transfers.sends[pair][k];
        const PeerTransfer& receive = transfers.receives[pair][k];
        const View& target = part_of(to, static_cast<std::size_t>(receive.part)).receive;
        Message message;
        message.from = lowered_.ranks[from];
        message.to = lowered_.ranks[to];
        message.send = region(from, part_of(from, static_cast<std::size_t>(send.part)).send, *send.entry->send_rows,
                              send.entry->send_column, send.entry->send_columns);
        message.receive = region(to, target, *receive.entry->receive_rows, receive.entry->receive_column,
                                 receive.entry->receive_columns);
        message.accumulate = target.access == Access::kAccumulate;
        if (message.send.rows * message.send.columns > 0) lowered_.messages.push_back(message);
      }
    }
  }

  // Some rows and columns of a view.
  Rows region(std::size_t member, const View& view, const RowList& list, std::int64_t column, std::int64_t columns) {
    const Rows all = bind(member, view);
    std::vector<std::int32_t> numbers;
    for (const RowSpan& span : list.spans) {
      if (span.begin < 0 || span.begin + span.count > all.rows || column < 0 || column + columns > all.columns) {
        throw ScheduleError(fmt::format("{}: a message of rows {} + {}, columns {} + {} leaves its view of {} x {}",
                                        place(instances_[member]), span.begin, span.count, column, columns, all.rows,
                                        all.columns));
      }
      for (std::int64_t i = 0; i < span.count; ++i) numbers.push_back(static_cast<std::int32_t>(span.begin + i));
    }
    return ViewBinder::columns(binder(member).select(all, numbers), column, columns);
  }

  void ring(std::size_t index) {
    LoweredCall::Part part;
    for (std::size_t m = 0; m < instances_.size(); ++m) {
      const CollectivePart& of = part_of(m, index);
      const bool sends = of.send.tensor.kind >= 0;
      const bool receives = of.receive.tensor.kind >= 0;
      part.sends.push_back(sends ? bind(m, of.send) : Rows{});
      part.receives.push_back(receives ? bind(m, of.receive) : Rows{});
    }
    switch (lowered_.kind) {
      case CollectiveKind::kAllGather:
        all_gather(part);
        break;
      case CollectiveKind::kBroadcast:
        for (std::size_t m = 1; m < instances_.size(); ++m) {
          lowered_.messages.push_back({lowered_.ranks[0], lowered_.ranks[m], part.sends[0], part.receives[m], false});
        }
        break;
      case CollectiveKind::kAllReduce:
        lowered_.reductions.push_back({lowered_.ranks, part.receives, lowered_.ranks, part.receives});
        break;
      case CollectiveKind::kReduceScatter:
        reduce_scatter(part, index);
        break;
      case CollectiveKind::kExchange:
        break;
    }
    lowered_.parts.push_back(std::move(part));
  }

  void all_gather(const LoweredCall::Part& part) {
    const std::int64_t rows = part.sends.front().rows;
    for (std::size_t to = 0; to < instances_.size(); ++to) {
      for (std::size_t from = 0; from < instances_.size(); ++from) {
        const Rows block = ViewBinder::slice(part.receives[to], static_cast<std::int64_t>(from) * rows, rows);
        lowered_.messages.push_back({lowered_.ranks[from], lowered_.ranks[to], part.sends[from], block, false});
      }
    }
  }

  void reduce_scatter(const LoweredCall::Part& part, std::size_t index) {
    const std::int64_t rows = part.receives.front().rows;
    for (std::size_t to = 0; to < instances_.size(); ++to) {
      if (part_of(to, index).receive.access == Access::kAccumulate) {
        throw ScheduleError(fmt::format("{}: a reduce-scatter cannot add to its result", place(instances_[to])));
      }
      Reduction reduction;
      reduction.from = lowered_.ranks;
      for (const Rows& send : part.sends) {
        reduction.sends.push_back(ViewBinder::slice(send, static_cast<std::int64_t>(to) * rows, rows));
      }
      reduction.to = {lowered_.ranks[to]};
      reduction.receives = {part.receives[to]};
      lowered_.reductions.push_back(std::move(reduction));
    }
  }

  const GroupCall& call_;
  std::deque<RankLowering>& ranks_;
  std::vector<OpInstance> instances_;
  LoweredCall lowered_;
};

}  // namespace

LoweredCall lower_call(const Schedule& schedule, const Programs& programs, std::int32_t call,
                       std::deque<RankLowering>& ranks) {
  return CallLowering(schedule, programs, call, ranks).run();
}

}  // namespace longhaul
