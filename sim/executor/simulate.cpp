#include "sim/executor/simulate.h"

#include "sim/executor/engine.h"

namespace longhaul {

Totals simulate(const Schedule& schedule, const OpDurations& durations, CollectiveNetwork& network,
                const SimulationOptions& options) {
  return Engine(schedule, durations, network, options).run();
}

Totals simulate(const Schedule& schedule, const Cluster& cluster, const KernelModel& kernels,
                const SimulationOptions& options) {
  const KernelDurations durations(kernels, options.kernel_scale);
  const std::unique_ptr<CollectiveNetwork> network = make_flow_network(cluster, options.collective_scale);
  return simulate(schedule, durations, *network, options);
}

}  // namespace longhaul
