// Topologies: what is read describes nodes that are there.

#include "sim/cluster/topology.h"
#include "sim/core/data_files.h"
#include "sim/core/json.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longhaul;
  const Expected<Json> json = parse_json(text_of(data, size), "fuzzed.json");
  if (!json) {
    require_said(json.error());
    return 0;
  }
  const Expected<Topology> topology = parse_topology(*json, "fuzzed.json", "", data_directory());
  if (!topology) {
    require_said(topology.error());
    return 0;
  }
  LH_ASSERT(topology->gpus_per_node >= 1, "a node of {} GPUs", topology->gpus_per_node);
  LH_ASSERT(topology->nvlink_step() >= Time(), "a step back in time: {} ps", topology->nvlink_step().ps());
  LH_ASSERT(topology->network_step() >= Time(), "a step back in time: {} ps", topology->network_step().ps());
  return 0;
}
