#include "sim/strategies/step/replicas.h"

#include <numeric>

namespace longhaul {

std::vector<std::int32_t> micro_batch(int chunk, int replica, int replicas, std::int64_t per_micro_batch) {
  std::vector<std::int32_t> sequences(static_cast<std::size_t>(per_micro_batch));
  const std::int64_t first = (static_cast<std::int64_t>(chunk) * replicas + replica) * per_micro_batch;
  std::iota(sequences.begin(), sequences.end(), static_cast<std::int32_t>(first));
  return sequences;
}

int micro_batch_count(const Batch& batch, int replicas, std::int64_t per_micro_batch) {
  return static_cast<int>(static_cast<std::int64_t>(batch.sequences.size()) / (replicas * per_micro_batch));
}

void add_replica_ranks(ScheduleBuilder& builder, const StepBuilder& step, const ModelShape& model, int ranks,
                       int chunks) {
  const int layers = static_cast<int>(model.layers);
  Program program;
  program.resident = step.resident(0, layers, true, true);
  for (int chunk = 0; chunk < chunks; ++chunk) step.append_chunk(program, chunk, chunk + 1 == chunks);
  step.append_optimizer(program, 0, layers, true, true);
  const ProgramId id = builder.add_program(std::move(program));
  std::vector<std::int32_t> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  const GroupId zero = builder.add_group(std::move(all));
  builder.schedule.ranks.resize(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    RankInfo& info = builder.schedule.ranks[static_cast<std::size_t>(rank)];
    info.program = id;
    info.groups.assign(builder.schedule.roles.size(), -1);
    info.groups[static_cast<std::size_t>(step.zero_role())] = zero;
    info.shapes.assign(static_cast<std::size_t>(chunks), -1);
    info.representative = rank;
  }
}

StepOptions unstaged_options(const StrategyRequest& request, int chunks) {
  StepOptions options;
  options.training = request.training;
  options.zero_ranks = request.ranks;
  options.chunks = chunks;
  return options;
}

}  // namespace longhaul
