#include "sim/strategies/step/context_step.h"

namespace longhaul {

std::shared_ptr<const Schedule> context_schedule(const StrategyRequest& request, AttentionScheme& scheme,
                                                 const std::function<GroupRole()>& role,
                                                 const SetContextShape& set_shape) {
  const int group_size = request.degrees.cp;
  const int replicas = request.degrees.dp;
  const int chunks = micro_batch_count(*request.batch, replicas, request.training.micro_batch_sequences);
  ScheduleBuilder builder;
  builder.schedule.model = request.model;
  builder.schedule.batch = request.batch;
  const StepBuilder step(builder, request.model, request.batch->objective, unstaged_options(request, chunks), scheme);
  add_replica_ranks(builder, step, request.model, request.ranks, chunks);
  for (int replica = 0; replica < replicas; ++replica) {
    std::vector<std::int32_t> members;
    for (int member = 0; member < group_size; ++member) members.push_back(replica * group_size + member);
    const GroupId group = builder.add_group(members);
    for (const std::int32_t rank : members) {
      builder.schedule.ranks[static_cast<std::size_t>(rank)].groups[static_cast<std::size_t>(role())] = group;
    }
  }
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int replica = 0; replica < replicas; ++replica) {
      for (int member = 0; member < group_size; ++member) {
        ShapeSet shape = builder.empty_shape();
        set_shape(shape, step, chunk * replicas + replica, member);
        const std::size_t rank = static_cast<std::size_t>(replica * group_size + member);
        builder.schedule.ranks[rank].shapes[static_cast<std::size_t>(chunk)] = builder.add_shape(std::move(shape));
      }
    }
  }
  return std::make_shared<const Schedule>(std::move(builder.schedule));
}

}  // namespace longhaul
