#include "sim/schedule/agreement.h"

#include <fmt/format.h>

namespace longhaul {
namespace {

ElementType type_of(const Schedule& schedule, const View& view) {
  return schedule.tensors[static_cast<std::size_t>(view.tensor.kind)].type;
}

std::string name_of(const Schedule& schedule, const OpInstance& at, const View& view) {
  return tensor_name(schedule, resolve(at, view.tensor));
}

class Comparison {
 public:
  Comparison(const Schedule& schedule, const std::vector<OpInstance>& calls) : schedule_(schedule), calls_(calls) {}

  std::vector<std::string> run() {
    const Op& first = *calls_.front().op;
    for (const OpInstance& call : calls_) {
      if (call.op->collective != first.collective) {
        add(call, fmt::format("calls {}, but {} calls {}", to_string(call.op->collective), place(calls_.front()),
                              to_string(first.collective)));
      }
    }
    if (!differences_.empty()) return differences_;
    if (first.collective == CollectiveKind::kExchange) {
      compare_exchange();
    } else {
      compare_ring();
    }
    return differences_;
  }

 private:
  void add(const OpInstance& at, const std::string& what) { differences_.push_back(place(at) + ": " + what); }

  // Rows of `view` must be `rows`, its columns and type those of `like` at the first member.
  void expect(const OpInstance& at, const View& view, std::int64_t rows, const View& like) {
    const std::int64_t found = view_rows(schedule_, at, view);
    if (found == rows && view.columns == like.columns && type_of(schedule_, view) == type_of(schedule_, like)) return;
    add(at,
        fmt::format("{} of {} x {}, expected {} x {} as for {} of {}", name_of(schedule_, at, view), found,
                    view.columns, rows, like.columns, name_of(schedule_, calls_.front(), like), place(calls_.front())));
  }

  void compare_ring() {
    const OpInstance& first = calls_.front();
    const auto members = static_cast<std::int64_t>(calls_.size());
    for (const OpInstance& call : calls_) {
      if (call.op->parts.size() != first.op->parts.size()) {
        add(call, fmt::format("has {} parts, {} has {}", call.op->parts.size(), place(first), first.op->parts.size()));
        continue;
      }
      for (std::size_t p = 0; p < call.op->parts.size(); ++p) {
        const CollectivePart& part = call.op->parts[p];
        const CollectivePart& model = first.op->parts[p];
        switch (first.op->collective) {
          case CollectiveKind::kAllReduce:
            expect(call, part.receive, view_rows(schedule_, first, model.receive), model.receive);
            break;
          case CollectiveKind::kAllGather: {
            const std::int64_t rows = view_rows(schedule_, first, model.send);
            expect(call, part.send, rows, model.send);
            expect(call, part.receive, rows * members, model.send);
            break;
          }
          case CollectiveKind::kReduceScatter: {
            const std::int64_t rows = view_rows(schedule_, first, model.receive);
            expect(call, part.receive, rows, model.receive);
            expect(call, part.send, rows * members, model.receive);
            break;
          }
          case CollectiveKind::kBroadcast:
            if (&call != &first) expect(call, part.receive, view_rows(schedule_, first, model.send), model.send);
            break;
          case CollectiveKind::kExchange:
            break;
        }
      }
    }
  }

  void compare_exchange() {
    const ExchangeTransfers transfers = exchange_transfers(calls_);
    const std::size_t members = calls_.size();
    for (std::size_t i = 0; i < members; ++i) {
      for (std::size_t j = 0; j < members; ++j) {
        const std::vector<PeerTransfer>& sends = transfers.sends[i * members + j];
        const std::vector<PeerTransfer>& receives = transfers.receives[i * members + j];
        if (sends.size() != receives.size()) {
          add(calls_[i], fmt::format("sends {} messages to member {}, which receives {} ({})", sends.size(), j,
                                     receives.size(), place(calls_[j])));
          continue;
        }
        for (std::size_t k = 0; k < sends.size(); ++k) compare_transfer(i, j, sends[k], receives[k]);
      }
    }
  }

  void compare_transfer(std::size_t from, std::size_t to, const PeerTransfer& send, const PeerTransfer& receive) {
    const View& source = calls_[from].op->parts[static_cast<std::size_t>(send.part)].send;
    const View& target = calls_[to].op->parts[static_cast<std::size_t>(receive.part)].receive;
    const std::int64_t sent = send.entry->send_rows->rows * send.entry->send_columns;
    const std::int64_t received = receive.entry->receive_rows->rows * receive.entry->receive_columns;
    const bool same_type = type_of(schedule_, source) == type_of(schedule_, target);
    if (sent == received && same_type) return;
    add(calls_[from], fmt::format("sends {} elements of {} to member {}, which receives {} into {}{}", sent,
                                  name_of(schedule_, calls_[from], source), to, received,
                                  name_of(schedule_, calls_[to], target), same_type ? "" : " of another type"));
  }

  const Schedule& schedule_;
  const std::vector<OpInstance>& calls_;
  std::vector<std::string> differences_;
};

bool has_rows(const RowListPtr& rows) { return rows != nullptr && rows->rows > 0; }

}  // namespace

ExchangeTransfers exchange_transfers(const std::vector<OpInstance>& calls) {
  const std::size_t members = calls.size();
  ExchangeTransfers transfers;
  transfers.sends.resize(members * members);
  transfers.receives.resize(members * members);
  for (std::size_t i = 0; i < members; ++i) {
    const std::vector<CollectivePart>& parts = calls[i].op->parts;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      if (parts[p].exchange < 0) continue;
      const ExchangeListPtr& list = calls[i].shape->exchanges[static_cast<std::size_t>(parts[p].exchange)];
      if (list == nullptr) continue;
      for (const PeerExchange& entry : *list) {
        const auto peer = static_cast<std::size_t>(entry.peer);
        const PeerTransfer transfer{static_cast<std::int16_t>(p), &entry};
        if (has_rows(entry.send_rows) && entry.send_columns > 0) {
          transfers.sends[i * members + peer].push_back(transfer);
        }
        if (has_rows(entry.receive_rows) && entry.receive_columns > 0) {
          transfers.receives[peer * members + i].push_back(transfer);
        }
      }
    }
  }
  return transfers;
}

std::vector<std::string> collective_differences(const Schedule& schedule, const std::vector<OpInstance>& calls) {
  return Comparison(schedule, calls).run();
}

std::string place(const OpInstance& at) {
  return fmt::format("rank {} `{}` ({}, layer {}, chunk {})", at.rank, at.op->label, to_string(at.op->pass), at.layer,
                     at.chunk);
}

std::string tensor_name(const Schedule& schedule, const TensorId& id) {
  std::string name = schedule.tensors[static_cast<std::size_t>(id.kind)].name + "[";
  if (id.layer != kNoLayer) name += fmt::format("layer {}, ", id.layer);
  if (id.chunk != kNoChunk) name += fmt::format("chunk {}, ", id.chunk);
  return name + fmt::format("instance {}]", id.instance);
}

}  // namespace longhaul
