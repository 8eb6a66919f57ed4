#include "sim/network/nccl/rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/algorithm/string.hpp>
#include <boost/lexical_cast/try_lexical_convert.hpp>
#include <cmath>

#include "sim/cluster/find_topology.h"
#include "sim/core/csv.h"
#include "sim/core/printable.h"

namespace longhaul {
namespace {

constexpr double kMostBytes = 1e15;
constexpr int kMostRanks = 1'000'000;
constexpr double kMostMicroseconds = 1e12;

// One row's fields by column; faults go to `errors` with the line.
class Fields {
 public:
  Fields(const CsvTable& table, const CsvRow& row, const std::string& file, Errors& errors)
      : table_(table), row_(row), file_(file), errors_(errors) {}

  std::string text(std::string_view column) const {
    const std::optional<std::size_t> at = table_.find(column);
    return at ? row_.fields[*at] : std::string();
  }

  void fault(std::string_view column, std::string expected, std::string nearest = "") {
    errors_.push_back({file_, fmt::format("line {}", row_.line),
                       fmt::format("{} is \"{}\"", column, echoed(text(column))), std::move(expected),
                       std::move(nearest)});
  }

  // nullopt after a fault.
  std::optional<int> count(std::string_view column) {
    int value = 0;
    if (boost::conversion::try_lexical_convert(text(column), value) && value >= 1 && value <= kMostRanks) return value;
    fault(column, fmt::format("an integer from 1 to {}", kMostRanks));
    return std::nullopt;
  }

  double positive(std::string_view column, double most, std::string expected) {
    double value = 0;
    if (boost::conversion::try_lexical_convert(text(column), value) && std::isfinite(value) && value > 0 &&
        value <= most) {
      return value;
    }
    fault(column, std::move(expected));
    return 1;
  }

 private:
  const CsvTable& table_;
  const CsvRow& row_;
  const std::string& file_;
  Errors& errors_;
};

template <class T>
std::vector<std::string> names_below(T end) {
  std::vector<std::string> names;
  for (int i = 0; i < static_cast<int>(end); ++i) names.emplace_back(nccl_name(static_cast<T>(i)));
  return names;
}

// The member of `names` that `text` is, without case.
std::optional<int> index_of(const std::vector<std::string>& names, const std::string& text) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (boost::iequals(names[i], text)) return static_cast<int>(i);
  }
  return std::nullopt;
}

NcclCollective read_collective(Fields& fields) {
  std::vector<std::string> names = names_below(NcclCollective::kBroadcast);
  names.emplace_back(nccl_name(NcclCollective::kBroadcast));
  const std::string text = fields.text("collective");
  if (const std::optional<int> index = index_of(names, text)) return static_cast<NcclCollective>(*index);
  fields.fault("collective", fmt::format("one of {}", fmt::join(names, ", ")), nearest_name(text, names));
  return NcclCollective::kAllReduce;
}

Harness read_harness(Fields& fields) {
  using enum Harness;
  static const std::vector<std::string> names = {"nccl-tests", "rccl-tests", "nccl-tests -g", "rccl-tests -g",
                                                 "pytorch"};
  static constexpr Harness kMeant[] = {kNcclTests, kNcclTests, kNcclTestsOneThread, kNcclTestsOneThread, kPyTorch};
  const std::string text = fields.text("harness");
  if (text.empty()) return kNcclTests;
  if (const std::optional<int> index = index_of(names, text)) return kMeant[*index];
  fields.fault("harness", fmt::format("one of {}", fmt::join(names, ", ")), nearest_name(text, names));
  return kNcclTests;
}

// "2.27.7", as NCCL, packages ("2.27.7-1") and containers ("v2.27.7+cuda12.8") write it.
int read_version(Fields& fields) {
  std::string text = fields.text("nccl_version");
  if (text.empty()) return kNcclVersion;
  if (text.front() == 'v') text.erase(0, 1);
  text.resize(std::min(text.find_first_of("+-"), text.size()));
  std::vector<std::string> parts;
  boost::split(parts, text, boost::is_any_of("."));
  int numbers[3] = {0, 0, 0};
  bool right = parts.size() == 2 || parts.size() == 3;
  for (std::size_t i = 0; right && i < parts.size(); ++i) {
    right = boost::conversion::try_lexical_convert(parts[i], numbers[i]) && numbers[i] >= 0 && numbers[i] < 100;
  }
  if (!right) fields.fault("nccl_version", "a version such as 2.27.7");
  return right ? 10000 * numbers[0] + 100 * numbers[1] + numbers[2] : kNcclVersion;
}

void read_settings(Fields& fields, CollectiveRow& row) {
  const std::string text = fields.text("settings");
  if (text.empty()) return;
  std::vector<std::string> parts;
  boost::split(parts, text, boost::is_any_of(" "), boost::token_compress_on);
  for (const std::string& part : parts) {
    if (part == "NCCL_NVLS_ENABLE=0") {
      row.nvls_off = true;
      continue;
    }
    const std::vector<std::string> names = names_below(NcclAlgorithm::kDirect);
    const std::string prefix = "NCCL_ALGO=";
    const std::optional<int> index =
        part.starts_with(prefix) ? index_of(names, part.substr(prefix.size())) : std::nullopt;
    if (index) {
      row.forced = static_cast<NcclAlgorithm>(*index);
    } else {
      fields.fault("settings", fmt::format("NCCL_NVLS_ENABLE=0 or NCCL_ALGO= and one of {}", fmt::join(names, ", ")));
    }
  }
}

CollectiveRow read_row(Fields& fields) {
  CollectiveRow row;
  row.collective = read_collective(fields);
  row.gpu = fields.text("gpu");
  if (row.gpu.empty()) fields.fault("gpu", "the name of a GPU");
  const std::optional<int> ranks = fields.count("n_gpu");
  const std::optional<int> nodes = fields.count("n_nodes");
  const std::optional<int> gpus_per_node = fields.count("gpus_per_node");
  row.ranks = ranks.value_or(1);
  row.nodes = nodes.value_or(1);
  row.gpus_per_node = gpus_per_node.value_or(1);
  row.bytes = fields.positive("size_bytes", kMostBytes, "a number of bytes above 0, at most 1e15");
  row.fabric = fields.text("fabric");
  row.version = read_version(fields);
  row.harness = read_harness(fields);
  read_settings(fields, row);
  const bool counted = ranks && nodes && gpus_per_node;
  if (counted && (row.nodes > row.ranks || static_cast<std::int64_t>(row.nodes) * row.gpus_per_node < row.ranks)) {
    fields.fault("n_gpu", fmt::format("between 1 and {} GPUs on each of {} nodes", row.gpus_per_node, row.nodes));
  }
  for (const char* column : {"oop_time_us", "ip_time_us"}) {
    if (row.measured_us || fields.text(column).empty()) continue;
    row.measured_us = fields.positive(column, kMostMicroseconds, "microseconds above 0");
  }
  return row;
}

std::string machine_key(const CollectiveRow& row) {
  return fmt::format("{}|{}|{}|{}", row.gpu, row.fabric, row.nodes, row.gpus_per_node);
}

}  // namespace

Expected<std::vector<CollectiveRow>> parse_collective_rows(const std::string& csv, const std::string& file) {
  Errors errors;
  const CsvTable table = read_csv(csv, file, errors);
  for (const char* column : {"collective", "gpu", "n_gpu", "n_nodes", "gpus_per_node", "size_bytes"}) {
    if (!table.columns.empty() && !table.find(column)) {
      errors.push_back({file, "", fmt::format("has no column \"{}\"", column),
                        "collective,gpu,n_gpu,n_nodes,gpus_per_node,size_bytes", nearest_name(column, table.columns)});
    }
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  std::vector<CollectiveRow> rows;
  for (const CsvRow& line : table.rows) {
    Fields fields(table, line, file, errors);
    rows.push_back(read_row(fields));
    rows.back().line = line.line;
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return rows;
}

Expected<NcclMachine> RowMachines::machine(const CollectiveRow& row, const std::string& file) {
  const std::string key = machine_key(row);
  const auto found = std::find_if(known_.begin(), known_.end(), [&](const Known& k) { return k.key == key; });
  if (found != known_.end()) {
    if (!found->machine) return found->machine;
    return with_settings(*found->machine, row);
  }
  const MachineQuery query{row.gpu, row.nodes, row.gpus_per_node, row.fabric};
  const std::string place = fmt::format("line {}", row.line);
  const auto read = [&]() -> Expected<NcclMachine> {
    const Expected<std::string> name = find_topology(query, data_directory_, file, place);
    if (!name) return tl::unexpected(name.error());
    const Expected<Topology> topology = read_topology(*name, data_directory_);
    if (!topology) return tl::unexpected(topology.error());
    return nccl_machine(*topology);
  };
  known_.push_back({key, read()});
  if (!known_.back().machine) return known_.back().machine;
  return with_settings(*known_.back().machine, row);
}

NcclMachine with_settings(NcclMachine machine, const CollectiveRow& row) {
  machine.version = row.version;
  machine.nvls = machine.nvls && !row.nvls_off;
  machine.forced = row.forced;
  return machine;
}

NcclCall call_of(const CollectiveRow& row, const NcclMachine& machine) {
  NcclCall call;
  call.collective = row.collective;
  call.ranks = row.ranks;
  call.bytes = row.bytes;
  const bool wide = machine.gpus_per_domain > row.gpus_per_node;  // a domain spans several nodes
  call.domains = wide ? (row.ranks + machine.gpus_per_domain - 1) / machine.gpus_per_domain : row.nodes;
  call.per_domain = (row.ranks + call.domains - 1) / call.domains;
  return call;
}

double harness_us(const NcclConstants& constants, const CollectiveRow& row, int channels, double us) {
  HarnessCall call;
  call.harness = row.harness;
  call.gpus_per_host = (row.ranks + row.nodes - 1) / row.nodes;
  call.version = row.version;
  call.channels = channels;
  call.us = us;
  return harness_us(constants, call);
}

NcclTime predict(const NcclConstants& constants, const NcclMachine& machine, const CollectiveRow& row) {
  NcclTime time = nccl_time(constants, machine, call_of(row, machine));
  time.fixed_us += harness_us(constants, row, time.channels, time.total_us());
  return time;
}

}  // namespace longhaul
