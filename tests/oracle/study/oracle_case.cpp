#include "tests/oracle/study/oracle_case.h"

#include <nlohmann/json.hpp>
#include <numeric>

#include "sim/core/data_files.h"
#include "sim/core/invariant.h"
#include "sim/workload/documents.h"
#include "sim/workload/model_reader.h"

namespace longhaul::oracle {

ModelShape shipped_model(const std::string& name) {
  Errors errors;
  const auto model = find_model(name, "oracle", "/model", errors);
  LH_ASSERT(model.has_value(), "no model {}", name);
  return *model;
}

Cluster shipped_cluster(const std::string& topology, int gpus) {
  const auto read = read_topology(topology, data_directory());
  LH_ASSERT(read.has_value(), "no topology {}", topology);
  auto cluster = make_cluster(*read, gpus);
  LH_ASSERT(cluster.has_value(), "{} has not {} GPUs", topology, gpus);
  return *cluster;
}

KernelModel kernels_of(const Cluster& cluster) {
  auto kernels = load_kernel_model(cluster.device(), data_directory());
  LH_ASSERT(kernels.has_value(), "no calibration");
  return *kernels;
}

StrategyRequest request_of(const StepCase& of) {
  StrategyRequest request;
  request.batch = std::make_shared<const Batch>(explicit_batch(of.sequences, of.objective));
  request.model = of.model;
  request.ranks = of.degrees.ranks();
  request.gpus_per_node = of.cluster != nullptr ? of.cluster->gpus_per_node() : of.gpus_per_node;
  request.training.zero_stage = of.zero_stage;
  request.training.recompute = of.recompute;
  request.training.micro_batch_sequences = of.micro_batch_sequences;
  request.degrees = of.degrees;
  request.options = of.options;
  request.cluster = of.cluster;
  return request;
}

tl::expected<std::shared_ptr<const Schedule>, std::string> try_schedule(const StepCase& of) {
  const Strategy* strategy = find_strategy(of.strategy);
  LH_ASSERT(strategy != nullptr, "no strategy {}", of.strategy);
  const StrategyRequest request = request_of(of);
  if (auto applicable = check_applicable(*strategy, request); !applicable) return tl::unexpected(applicable.error());
  Planned planned = strategy->plan(request);
  if (!planned) return tl::unexpected(planned.error());
  return planned->schedule;
}

std::shared_ptr<const Schedule> schedule_of(const StepCase& of) {
  auto schedule = try_schedule(of);
  LH_ASSERT(schedule.has_value(), "{}: {}", of.strategy, schedule.error());
  return *schedule;
}

void for_each_op(const Schedule& schedule, int rank, const std::function<void(const OpInstance&)>& visit) {
  Cursor cursor(rank);
  OpInstance at;
  while (cursor.next(schedule, at)) visit(at);
}

namespace {

std::int64_t send_buffer_bytes(const Schedule& schedule, const OpInstance& at) {
  std::int64_t bytes = 0;
  for (const CollectivePart& part : at.op->parts) {
    const TensorKind& kind = schedule.tensors[static_cast<std::size_t>(part.send.tensor.kind)];
    const ExchangeListPtr& peers = at.shape->exchanges[static_cast<std::size_t>(part.exchange)];
    if (peers == nullptr) continue;
    for (const PeerExchange& peer : *peers) {
      if (peer.send_rows == nullptr) continue;
      bytes += peer.send_rows->rows * peer.send_columns * element_bytes(kind.type);
    }
  }
  return bytes;
}

}  // namespace

Volume volume_of(const Schedule& schedule, int rank, const Selection& selection, int gpus_per_node) {
  Volume volume;
  for_each_op(schedule, rank, [&](const OpInstance& at) {
    const Op& op = *at.op;
    if (op.kind != OpKind::kCollective) return;
    if (schedule.roles[static_cast<std::size_t>(op.role)] != selection.role) return;
    if (selection.layer && *selection.layer != at.layer) return;
    if (selection.pass && *selection.pass != op.pass) return;
    if (selection.kind && *selection.kind != op.collective) return;
    ++volume.calls;
    const GroupId group = schedule.ranks[static_cast<std::size_t>(rank)].groups[static_cast<std::size_t>(op.role)];
    const std::vector<std::int32_t>& members = schedule.groups[static_cast<std::size_t>(group)].members;
    if (op.collective != CollectiveKind::kExchange) {
      const std::int64_t part = collective_buffer_bytes(schedule, at);
      volume.buffer += part;
      volume.leaves_gpu += part * (static_cast<std::int64_t>(members.size()) - 1);
      return;
    }
    volume.buffer += send_buffer_bytes(schedule, at);
    for (const PeerBytes& peer : exchange_bytes(schedule, at)) {
      volume.leaves_gpu += peer.send;
      const int to = members[static_cast<std::size_t>(peer.peer)];
      if (to / gpus_per_node != rank / gpus_per_node) volume.leaves_node += peer.send;
    }
  });
  return volume;
}

std::vector<std::int64_t> pairs_of_ops(const Schedule& schedule, int rank, Pass pass, int layer) {
  std::vector<std::int64_t> pairs;
  for_each_op(schedule, rank, [&](const OpInstance& at) {
    if (at.op->kind != OpKind::kAttention || at.op->pass != pass || at.layer != layer) return;
    pairs.push_back(at.shape->pieces[static_cast<std::size_t>(at.op->pieces)]->pairs);
  });
  return pairs;
}

std::int64_t pairs_of(const Schedule& schedule, int rank, Pass pass, int layer) {
  const std::vector<std::int64_t> pairs = pairs_of_ops(schedule, rank, pass, layer);
  return std::accumulate(pairs.begin(), pairs.end(), std::int64_t{0});
}

std::vector<RowMapPtr> rows_of(const Schedule& schedule, int rank, int layer) {
  std::vector<RowMapPtr> rows;
  for_each_op(schedule, rank, [&](const OpInstance& at) {
    if (at.op->label != "qkv" || at.op->pass != Pass::kForward || at.layer != layer) return;
    const TensorKind& kind = schedule.tensors[static_cast<std::size_t>(at.op->operands.front().tensor.kind)];
    rows.push_back(at.shape->row_maps[static_cast<std::size_t>(kind.rows)]);
  });
  return rows;
}

std::int64_t tokens_of(const Schedule& schedule, int rank, int layer) {
  std::int64_t tokens = 0;
  for (const RowMapPtr& rows : rows_of(schedule, rank, layer)) tokens += rows->tokens;
  return tokens;
}

}  // namespace longhaul::oracle
