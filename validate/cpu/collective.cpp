// Collectives. Everything that is sent is copied out before anything is received, and reductions add in member order.
#include <fmt/format.h>

#include "validate/cpu/ops.h"

namespace longhaul {
namespace {

using Calls = std::vector<OpInstance>;

const CollectivePart& part_of(const OpInstance& call, std::size_t part) { return call.op->parts[part]; }

void all_reduce(Machine& machine, const Calls& calls, std::size_t part) {
  std::vector<Region> regions;
  Matrix sum;
  for (const OpInstance& call : calls) {
    Region region = machine.region(call, part_of(call, part).receive);
    machine.require_written(call, region, 0, region.rows());
    if (regions.empty()) {
      sum = region.load();
    } else {
      sum += region.load();
    }
    regions.push_back(std::move(region));
  }
  for (const Region& region : regions) {
    for (std::int64_t i = 0; i < region.rows(); ++i) {
      Eigen::Map<Eigen::RowVectorXd>(region.row(i), region.columns()) = sum.row(i);
    }
  }
}

void all_gather(Machine& machine, const Calls& calls, std::size_t part) {
  std::vector<Matrix> sent;
  for (const OpInstance& call : calls) sent.push_back(machine.checked(call, part_of(call, part).send).load());
  const std::int64_t rows = sent.front().rows();
  Matrix gathered(rows * static_cast<std::int64_t>(calls.size()), sent.front().cols());
  for (std::size_t i = 0; i < sent.size(); ++i)
    gathered.middleRows(static_cast<std::int64_t>(i) * rows, rows) = sent[i];
  for (const OpInstance& call : calls) machine.checked(call, part_of(call, part).receive).store(gathered);
}

void reduce_scatter(Machine& machine, const Calls& calls, std::size_t part) {
  Matrix sum;
  for (const OpInstance& call : calls) {
    const Region region = machine.checked(call, part_of(call, part).send);
    if (sum.size() == 0) {
      sum = region.load();
    } else {
      sum += region.load();
    }
  }
  const std::int64_t rows = sum.rows() / static_cast<std::int64_t>(calls.size());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Region region = machine.checked(calls[i], part_of(calls[i], part).receive);
    region.store(sum.middleRows(static_cast<std::int64_t>(i) * rows, rows));
  }
}

void broadcast(Machine& machine, const Calls& calls, std::size_t part) {
  const Matrix sent = machine.checked(calls.front(), part_of(calls.front(), part).send).load();
  for (std::size_t i = 1; i < calls.size(); ++i) {
    machine.checked(calls[i], part_of(calls[i], part).receive).store(sent);
  }
}

// A view of some rows and columns of a view: the elements of one message, row by row.
struct Message {
  const Region& region;
  const RowList& rows;
  std::int64_t column, columns;
};

template <class Element>
void for_each_element(Machine& machine, const OpInstance& call, const Message& message, Element&& element) {
  if (message.column < 0 || message.column + message.columns > message.region.columns()) {
    machine.fail(call, fmt::format("a message of columns {} + {} leaves its view of {}", message.column,
                                   message.columns, message.region.columns()));
  }
  for (const RowSpan& span : message.rows.spans) {
    if (span.begin + span.count > message.region.rows()) {
      machine.fail(call, fmt::format("a message of rows {} + {} leaves its view of {}", span.begin, span.count,
                                     message.region.rows()));
    }
    for (std::int64_t i = span.begin; i < span.begin + span.count; ++i) {
      double* row = message.region.row(i) + message.column;
      for (std::int64_t j = 0; j < message.columns; ++j) element(row[j]);
    }
  }
}

std::vector<double> pack(Machine& machine, const OpInstance& call, const PeerTransfer& send) {
  const Region region = machine.region(call, part_of(call, static_cast<std::size_t>(send.part)).send);
  for (const RowSpan& span : send.entry->send_rows->spans) {
    if (span.begin + span.count <= region.rows()) machine.require_written(call, region, span.begin, span.count);
  }
  std::vector<double> values;
  for_each_element(machine, call, {region, *send.entry->send_rows, send.entry->send_column, send.entry->send_columns},
                   [&](double& element) { values.push_back(element); });
  return values;
}

void unpack(Machine& machine, const OpInstance& call, const PeerTransfer& receive, const std::vector<double>& values) {
  const Region region = machine.region(call, part_of(call, static_cast<std::size_t>(receive.part)).receive);
  const bool adds = region.access() == Access::kAccumulate;
  if (adds) {
    for (const RowSpan& span : receive.entry->receive_rows->spans) {
      if (span.begin + span.count <= region.rows()) machine.require_written(call, region, span.begin, span.count);
    }
  }
  std::size_t next = 0;
  const Message message{region, *receive.entry->receive_rows, receive.entry->receive_column,
                        receive.entry->receive_columns};
  for_each_element(machine, call, message,
                   [&](double& element) { element = adds ? element + values[next] : values[next], ++next; });
}

void exchange(Machine& machine, const Calls& calls) {
  const ExchangeTransfers transfers = exchange_transfers(calls);
  const std::size_t members = calls.size();
  std::vector<std::vector<std::vector<double>>> messages(members * members);
  for (std::size_t pair = 0; pair < messages.size(); ++pair) {
    for (const PeerTransfer& send : transfers.sends[pair]) {
      messages[pair].push_back(pack(machine, calls[pair / members], send));
    }
  }
  for (std::size_t pair = 0; pair < messages.size(); ++pair) {  // by sender: additions come in member order
    for (std::size_t k = 0; k < messages[pair].size(); ++k) {
      unpack(machine, calls[pair % members], transfers.receives[pair][k], messages[pair][k]);
    }
  }
}

}  // namespace

void run_collective(Machine& machine, const std::vector<OpInstance>& calls) {
  const Op& op = *calls.front().op;
  if (op.collective == CollectiveKind::kExchange) return exchange(machine, calls);
  for (std::size_t part = 0; part < op.parts.size(); ++part) {
    switch (op.collective) {
      case CollectiveKind::kAllReduce:
        all_reduce(machine, calls, part);
        break;
      case CollectiveKind::kAllGather:
        all_gather(machine, calls, part);
        break;
      case CollectiveKind::kReduceScatter:
        reduce_scatter(machine, calls, part);
        break;
      case CollectiveKind::kBroadcast:
        broadcast(machine, calls, part);
        break;
      case CollectiveKind::kExchange:
        break;
    }
  }
}

}  // namespace longhaul
