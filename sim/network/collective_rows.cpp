#include "sim/network/collective_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "sim/cluster/find_topology.h"
#include "sim/core/csv.h"
#include "sim/core/data_files.h"
#include "sim/core/integers.h"
#include "sim/core/units.h"
#include "sim/network/nccl/rows.h"
#include "sim/network/shipped_nccl.h"

namespace longhaul {
namespace {

// A cluster and what runs on it.
struct Machine {
  Machine(Cluster of, const NcclConstants& constants) : cluster(std::move(of)), collectives(cluster, constants) {}
  Cluster cluster;
  Collectives collectives;
};

class Predictor {
 public:
  Predictor(const std::string& file, const std::optional<Topology>& topology, const std::string& data_directory,
            const NcclConstants& constants, Errors& errors)
      : file_(file), topology_(topology), data_directory_(data_directory), constants_(constants), errors_(errors) {}

  // nullopt: the row has a fault.
  std::optional<CollectivePrediction> predict(const CollectiveRow& row);

  const std::vector<std::string>& notes() const { return notes_; }

 private:
  template <class T>
  const T* take(const Expected<T>& value);
  const Topology* topology_of(const CollectiveRow& row);
  Expected<std::string> name_of(const CollectiveRow& row, const std::string& place);
  const Topology* shipped(const std::string& name);
  Machine* machine_of(const CollectiveRow& row, const Topology& topology, const std::vector<int>& ranks);

  const std::string& file_;
  const std::optional<Topology>& topology_;
  const std::string& data_directory_;
  const NcclConstants& constants_;
  Errors& errors_;
  std::map<std::tuple<std::string, int, int, std::string>, const Topology*> known_;  // by kind of row; null: a fault
  std::vector<std::string> notes_;
  std::set<std::string> told_;                                                // errors
  std::map<std::string, std::optional<Topology>> shipped_;                    // by name
  std::map<std::pair<std::string, int>, std::unique_ptr<Machine>> machines_;  // by topology and GPUs
};

// The value, or its errors noted: one of a shipped file, which every look-up meets, once.
template <class T>
const T* Predictor::take(const Expected<T>& value) {
  if (value) return &*value;
  for (const InputError& error : value.error()) {
    if (told_.insert(error.to_string()).second) errors_.push_back(error);
  }
  return nullptr;
}

const Topology* Predictor::topology_of(const CollectiveRow& row) {
  const std::string place = fmt::format("line {}", row.line);
  if (topology_) {
    const bool same = row.gpus_per_node == topology_->gpus_per_node;
    const bool fits = !topology_->nodes || row.nodes <= *topology_->nodes;
    if (!same) {
      errors_.push_back({file_, place, fmt::format("gpus_per_node is {}", row.gpus_per_node),
                         fmt::format("{}, as {} has", topology_->gpus_per_node, topology_->name), ""});
    }
    if (!fits) {
      errors_.push_back({file_, place, fmt::format("n_nodes is {}", row.nodes),
                         fmt::format("at most {}, all that {} has", *topology_->nodes, topology_->name), ""});
    }
    return same && fits ? &*topology_ : nullptr;
  }
  // The look-up reads every shipped file: once a kind of row, and a fault is told at the first line of its kind.
  const auto kind = std::make_tuple(row.gpu, row.nodes, row.gpus_per_node, row.fabric);
  auto known = known_.find(kind);
  if (known == known_.end()) {
    const Expected<std::string> name = name_of(row, place);
    known = known_.emplace(kind, take(name) == nullptr ? nullptr : shipped(*name)).first;
  }
  return known->second;
}

Expected<std::string> Predictor::name_of(const CollectiveRow& row, const std::string& place) {
  const auto find = [&](const std::string& fabric) {
    std::string note;
    Expected<std::string> name =
        find_topology({row.gpu, row.nodes, row.gpus_per_node, fabric}, data_directory_, file_, place, &note);
    if (!note.empty() && std::find(notes_.begin(), notes_.end(), note) == notes_.end()) notes_.push_back(note);
    return name;
  };
  Expected<std::string> found = find(row.fabric);
  // "nvl72+infiniband" names the domain and the network between domains: where no machine goes by both, the network's
  // among those that have such a domain.
  const std::size_t plus = row.fabric.find('+');
  if (found || plus == std::string::npos || plus == 0 || plus + 1 == row.fabric.size()) return found;
  if (!find(row.fabric.substr(0, plus))) return found;
  Expected<std::string> network = find(row.fabric.substr(plus + 1));
  return network ? network : found;
}

// A file that cannot be read is told once.
const Topology* Predictor::shipped(const std::string& name) {
  auto known = shipped_.find(name);
  if (known == shipped_.end()) {
    const Expected<Topology> read = read_topology(name, data_directory_);
    const Topology* topology = take(read);
    known = shipped_.emplace(name, topology == nullptr ? std::nullopt : std::optional(*topology)).first;
  }
  return known->second ? &*known->second : nullptr;
}

Machine* Predictor::machine_of(const CollectiveRow& row, const Topology& topology, const std::vector<int>& ranks) {
  // Whole domains where the ranks lie in several, else the hosts.
  const int domain = topology.domain_gpus();
  const int hosts = row.nodes * topology.gpus_per_node;
  const int gpus = std::max(hosts, ranks.back() >= domain ? (ranks.back() / domain + 1) * domain : 0);
  std::unique_ptr<Machine>& known = machines_[{topology.name, gpus}];
  if (known == nullptr) {
    const Expected<Cluster> cluster = make_cluster(topology, gpus, file_, fmt::format("line {}", row.line));
    if (take(cluster) == nullptr) return nullptr;
    known = std::make_unique<Machine>(*cluster, constants_);
  }
  return known.get();
}

std::optional<CollectivePrediction> Predictor::predict(const CollectiveRow& row) {
  if (row.bytes != std::floor(row.bytes)) {
    errors_.push_back({file_, fmt::format("line {}", row.line), fmt::format("size_bytes is {}", row.bytes),
                       "a whole number of bytes above 0", ""});
    return std::nullopt;
  }
  const Topology* topology = topology_of(row);
  if (topology == nullptr) return std::nullopt;
  const std::vector<int> ranks = nccl_tests_ranks(*topology, row.nodes, row.ranks);
  Machine* machine = machine_of(row, *topology, ranks);
  if (machine == nullptr) return std::nullopt;
  machine->collectives.set_machine(with_settings(nccl_machine(*topology), row));
  const Bytes size{static_cast<std::int64_t>(row.bytes)};
  const Transfer transfer = nccl_tests_transfer(machine->collectives, row.collective, ranks, size);
  CollectivePrediction predicted;
  predicted.us = transfer.alone.us();
  predicted.us += harness_us(constants_, row, transfer.channels, predicted.us);
  const double seconds = predicted.us * kMicro;
  if (seconds > 0) predicted.busbw_GBps = row.bytes / seconds / kGiga * busbw_factor(row.collective, row.ranks);
  predicted.algorithm = transfer.channels == 0
                            ? "none"
                            : fmt::format("{} {}", nccl_name(transfer.algorithm), nccl_name(transfer.protocol));
  return predicted;
}

// So that a table with other faults names its unknown GPUs as well: each once, at its first line.
void add_unknown_gpus(const CsvTable& table, const std::string& file, const std::string& data_directory,
                      Errors& errors) {
  const std::optional<std::size_t> column = table.find("gpu");
  if (!column) return;
  std::set<std::string> seen, told;
  for (const CsvRow& row : table.rows) {
    const std::string& gpu = row.fields[*column];
    if (gpu.empty() || !seen.insert(gpu).second) continue;
    const auto device = find_device(gpu, data_directory, file, fmt::format("line {}/gpu", row.line));
    if (device) continue;
    for (const InputError& error : device.error()) {
      if (told.insert(error.to_string()).second) errors.push_back(error);
    }
  }
}

}  // namespace

double busbw_factor(NcclCollective collective, int ranks) {
  const double part = static_cast<double>(ranks - 1) / ranks;
  switch (collective) {
    case NcclCollective::kAllReduce:
      return 2 * part;
    case NcclCollective::kAllGather:
    case NcclCollective::kReduceScatter:
    case NcclCollective::kAllToAll:
      return part;
    case NcclCollective::kSendRecv:
    case NcclCollective::kBroadcast:
      break;
  }
  return 1;
}

std::vector<int> nccl_tests_ranks(const Topology& topology, int nodes, int ranks) {
  const int nodes_per_domain = std::max(1, topology.domain_gpus() / topology.gpus_per_node);
  const int domains = (nodes + nodes_per_domain - 1) / nodes_per_domain;
  std::vector<int> out;
  int node = 0;
  for (int domain = 0; domain < domains; ++domain) {
    const int here = nodes / domains + (domain < nodes % domains ? 1 : 0);
    for (int i = 0; i < here; ++i, ++node) {
      const int first = (domain * nodes_per_domain + i) * topology.gpus_per_node;
      const int gpus = ranks / nodes + (node < ranks % nodes ? 1 : 0);
      for (int gpu = 0; gpu < gpus; ++gpu) out.push_back(first + gpu);
    }
  }
  return out;
}

Transfer nccl_tests_transfer(Collectives& collectives, NcclCollective collective, std::span<const int> ranks,
                             Bytes size) {
  const auto count = static_cast<std::int64_t>(ranks.size());
  const Bytes part{ceil_div(size.value, count)};
  switch (collective) {
    case NcclCollective::kAllReduce:
      return collectives.all_reduce(ranks, size);
    case NcclCollective::kAllGather:
      return collectives.all_gather(ranks, part);
    case NcclCollective::kReduceScatter:
      return collectives.reduce_scatter(ranks, part);
    case NcclCollective::kAllToAll:
      return collectives.all_to_all(ranks, part);
    case NcclCollective::kSendRecv:
      return collectives.send_receive(ranks, size);
    case NcclCollective::kBroadcast:
      break;
  }
  return collectives.broadcast(ranks, size);
}

Expected<CollectivePredictions> predict_collectives(const std::string& csv, const std::string& file,
                                                    const std::optional<Topology>& topology,
                                                    const std::string& data_directory) {
  Errors errors;
  if (const auto missing = missing_data_folder(file, "", data_directory)) return tl::unexpected(Errors{*missing});
  const Expected<NcclConstants> constants = read_shipped_nccl(data_directory);
  if (!constants) return tl::unexpected(constants.error());
  Expected<std::vector<CollectiveRow>> rows = parse_collective_rows(csv, file);
  Errors repeated;  // in `rows` already
  const CsvTable table = read_csv(csv, file, repeated);
  if (!rows) {
    if (!topology) add_unknown_gpus(table, file, data_directory, rows.error());
    return tl::unexpected(std::move(rows.error()));
  }
  for (const char* added : {"predicted_us", "predicted_busbw_GBps", "algorithm"}) {
    if (table.find(added)) {
      errors.push_back(
          {file, "", fmt::format("has a column \"{}\"", added), "no such column: it is what is added", ""});
    }
  }
  CollectivePredictions out;
  out.columns = table.columns;
  Predictor predictor(file, topology, data_directory, *constants, errors);
  for (std::size_t i = 0; i < rows->size(); ++i) {
    std::optional<CollectivePrediction> predicted = predictor.predict((*rows)[i]);
    if (!predicted) continue;
    predicted->fields = table.rows[i].fields;
    out.rows.push_back(std::move(*predicted));
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  out.notes = predictor.notes();
  return out;
}

}  // namespace longhaul
