#include "sim/network/nccl/constants.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "sim/core/json.h"

namespace longhaul {
namespace {

constexpr double kLargest = 1e6;

template <class Term>
void read_terms(JsonReader& parent, std::string_view group, std::size_t count, double* values) {
  const Json* json = parent.required(group, "an object of constants");
  if (json == nullptr) return;
  JsonReader reader(*json, parent.file(), parent.child_path(group), parent.errors());
  for (std::size_t i = 0; i < count; ++i) {
    const std::string_view name = nccl_name(static_cast<Term>(i));
    values[i] = reader.required_number(name, 0, kLargest).value_or(1);
  }
  reader.finish();
}

}  // namespace

std::string_view nccl_name(NcclGpu gpu) {
  static constexpr std::array<std::string_view, kNcclGpuCount> kNames = {"ampere", "hopper", "blackwell", "cdna"};
  return kNames[static_cast<std::size_t>(gpu)];
}

std::string_view nccl_name(NcclNetwork network) {
  static constexpr std::array<std::string_view, kNcclNetworkCount> kNames = {"infiniband", "roce",  "efa-1",   "efa-2",
                                                                             "tcpx",       "tcpxo", "ethernet"};
  return kNames[static_cast<std::size_t>(network)];
}

std::string_view nccl_name(GpuTerm term) {
  static constexpr std::array<std::string_view, kGpuTermCount> kNames = {"start_us",
                                                                         "ll_step_us",
                                                                         "ll_ramp_us",
                                                                         "ll_blocks_us",
                                                                         "ll_copy_step_us",
                                                                         "ll_hidden_us",
                                                                         "ll_copy_parts",
                                                                         "ll128_start_us",
                                                                         "ll128_step_us",
                                                                         "ll128_efficiency",
                                                                         "simple_start_us",
                                                                         "simple_step_us",
                                                                         "simple_lockstep_parts",
                                                                         "simple_drift_loops",
                                                                         "reduce_copy_parts",
                                                                         "gather_copy_parts",
                                                                         "scatter_copy_parts",
                                                                         "nvls_start_us",
                                                                         "nvls_sync_us",
                                                                         "nvls_fill_loops",
                                                                         "nvls_efficiency",
                                                                         "p2p_ll_us",
                                                                         "p2p_ll_gbps",
                                                                         "p2p_simple_us",
                                                                         "p2p_peer_us",
                                                                         "p2p_alone_gbps",
                                                                         "p2p_both_share",
                                                                         "p2p_efficiency",
                                                                         "p2p_memory_passes",
                                                                         "tree_step_us",
                                                                         "tree_ll_gbps",
                                                                         "tree_chunk_gbps",
                                                                         "nvls_tree_fill_loops"};
  return kNames[static_cast<std::size_t>(term)];
}

std::string_view nccl_name(NetworkTerm term) {
  static constexpr std::array<std::string_view, kNetworkTermCount> kNames = {
      "ll_hop_us",          "ll128_hop_us",      "simple_hop_us", "ll_share",        "tree_ll_share", "simple_start_us",
      "nvls_tree_start_us", "nvls_tree_sync_us", "efficiency",    "tree_efficiency", "p2p_efficiency"};
  return kNames[static_cast<std::size_t>(term)];
}

Expected<NcclConstants> read_nccl_constants(const std::string& file) {
  const Expected<Json> json = read_json_file(file);
  if (!json) return tl::unexpected(json.error());
  return parse_nccl_constants(*json, file, "");
}

Expected<NcclConstants> parse_nccl_constants(const Json& json, const std::string& file, const std::string& path) {
  Errors errors;
  NcclConstants out;
  JsonReader reader(json, file, path, errors);
  reader.required_choice("schema", {"nccl/1"});
  reader.required_string("description");
  reader.required("sources", "an object that says where each group of constants comes from");
  reader.required("tables", "a list of the tables that were fitted");
  if (const Json* gpus = reader.required("gpus", "an object with one entry a GPU generation")) {
    JsonReader groups(*gpus, file, reader.child_path("gpus"), errors);
    for (std::size_t i = 0; i < kNcclGpuCount; ++i) {
      read_terms<GpuTerm>(groups, nccl_name(static_cast<NcclGpu>(i)), kGpuTermCount, out.gpus[i].data());
    }
    groups.finish();
  }
  if (const Json* networks = reader.required("networks", "an object with one entry a network")) {
    JsonReader groups(*networks, file, reader.child_path("networks"), errors);
    for (std::size_t i = 0; i < kNcclNetworkCount; ++i) {
      read_terms<NetworkTerm>(groups, nccl_name(static_cast<NcclNetwork>(i)), kNetworkTermCount,
                              out.networks[i].data());
    }
    groups.finish();
  }
  if (const Json* harness = reader.required("harness", "an object of start costs")) {
    JsonReader costs(*harness, file, reader.child_path("harness"), errors);
    out.pytorch_us = costs.required_number("pytorch_us", 0, kLargest).value_or(0);
    out.launch_us = costs.required_number("launch_us", 0, kLargest).value_or(0);
    out.launch_channel_us = costs.required_number("launch_channel_us", 0, kLargest).value_or(0);
    costs.finish();
  }
  reader.finish();
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return out;
}

}  // namespace longhaul
