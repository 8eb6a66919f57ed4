#include "validate/accuracy/collectives.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "sim/core/invariant.h"
#include "sim/core/order_statistics.h"
#include "validate/fit/residuals.h"

namespace longhaul {
namespace {

constexpr double kKiB = 1024;
constexpr double kMiB = 1024 * kKiB;
constexpr double kMissing = 10;  // percent

bool twins(const CollectiveTable& a, const CollectiveTable& b) {
  const CollectiveMeasurement& x = a.rows.front();
  const CollectiveMeasurement& y = b.rows.front();
  return x.machine.gpu == y.machine.gpu && x.row.collective == y.row.collective && x.row.ranks == y.row.ranks &&
         x.row.nodes == y.row.nodes;
}

std::vector<const CollectiveMeasurement*> rows_without(const std::vector<CollectiveTable>& tables, std::size_t index,
                                                       LeaveOut leave_out) {
  if (leave_out == LeaveOut::kTable) return fitted_rows(tables, static_cast<int>(index));
  std::vector<const CollectiveMeasurement*> out;
  for (const CollectiveTable& table : tables) {
    if (!table.not_fitted.empty() || twins(table, tables[index])) continue;
    for (const CollectiveMeasurement& row : table.rows) out.push_back(&row);
  }
  return out;
}

struct Band {
  const char* name;
  double from;
  double to;
};

constexpr double kNoEnd = std::numeric_limits<double>::infinity();
const std::vector<Band>& bands() {
  static const std::vector<Band> all = {
      {"below 64 KiB", 0, 64 * kKiB},      {"64 KiB to 1 MiB", 64 * kKiB, kMiB}, {"below 1 MiB", 0, kMiB},
      {"1 to 64 MiB", kMiB, 64 * kMiB},    {"from 1 MiB", kMiB, kNoEnd},         {"from 64 MiB", 64 * kMiB, kNoEnd},
      {"4 to 64 MiB", 4 * kMiB, 64 * kMiB}};
  return all;
}

struct Target {
  const char* band;
  double median;
  double p90;
};

using MeasurementFilter = std::function<bool(const CollectiveTable&, const CollectiveMeasurement&)>;

struct GroupSpec {
  std::string name;
  MeasurementFilter holds;
  std::vector<Target> targets;
  bool held_out = false;  // of held-out tables alone; else of all others
};

bool one_node(const CollectiveMeasurement& m) { return m.row.nodes == 1 && m.row.harness != Harness::kPyTorch; }
bool exchanges(const CollectiveMeasurement& m) {
  return m.row.collective == NcclCollective::kAllToAll || m.row.collective == NcclCollective::kSendRecv;
}
bool all_to_all(const CollectiveMeasurement& m) { return m.row.collective == NcclCollective::kAllToAll; }
bool hopper(const CollectiveMeasurement& m) { return m.machine.gpu == NcclGpu::kHopper; }

bool known_fabric(const CollectiveMeasurement& m) {
  const NcclNetwork network = m.machine.network;
  const bool named = m.row.fabric == "infiniband" || m.row.fabric == "roce" || m.row.fabric == "tcpxo";
  const bool right =
      network == NcclNetwork::kInfiniBand || network == NcclNetwork::kRoce || network == NcclNetwork::kTcpxo;
  return m.row.nodes > 1 && named && right && !exchanges(m);
}

// A100 over HDR: virtual functions in pods, called untuned by its authors.
bool hdr(const CollectiveTable& table) { return table.name.starts_with("a100_2x8_dgx_hdr"); }

std::vector<GroupSpec> group_specs() {
  const std::vector<Target> ring = {
      {"below 64 KiB", 5, 15}, {"64 KiB to 1 MiB", 6, 14}, {"from 1 MiB", 5, 12}, {"from 64 MiB", 4, 9}};
  const std::vector<Target> exchange = {{"below 64 KiB", 12, 30}, {"64 KiB to 1 MiB", 9, 20}, {"from 1 MiB", 6, 14}};
  const std::vector<Target> network = {
      {"64 KiB to 1 MiB", 18, 45}, {"below 1 MiB", 18, 45}, {"from 1 MiB", 4, 20}, {"from 64 MiB", 2.5, 12}};
  std::vector<GroupSpec> specs = {
      {"one node, ring and NVLS", [](auto&, auto& m) { return one_node(m) && !exchanges(m); }, ring},
      {"one node, ring and NVLS, NCCL's own settings",
       [](auto& t, auto& m) { return one_node(m) && !exchanges(m) && t.fitted(); }, ring},
      {"one node, all-to-all", [](auto&, auto& m) { return one_node(m) && all_to_all(m); }, exchange},
      {"one node, all-to-all, Hopper",
       [](auto&, auto& m) { return one_node(m) && all_to_all(m) && hopper(m); },
       {{"from 1 MiB", 5, 11}}},
      {"several nodes, known fabric, A100 HDR aside", [](auto& t, auto& m) { return known_fabric(m) && !hdr(t); },
       network},
      {"several nodes, all", [](auto&, auto& m) { return m.row.nodes > 1; }, {}},
      {"two nodes", [](auto&, auto& m) { return m.row.nodes == 2; }, {}},
      {"more than two nodes", [](auto&, auto& m) { return m.row.nodes > 2; }, {}},
      {"PyTorch", [](auto&, auto& m) { return m.row.harness == Harness::kPyTorch; }, {}},
  };
  for (int c = 0; c <= static_cast<int>(NcclCollective::kBroadcast); ++c) {
    const auto collective = static_cast<NcclCollective>(c);
    specs.push_back({"one node, " + std::string(nccl_name(collective)),
                     [collective](auto&, auto& m) { return one_node(m) && m.row.collective == collective; },
                     {}});
  }
  for (std::size_t g = 0; g < kNcclGpuCount; ++g) {
    const auto gpu = static_cast<NcclGpu>(g);
    specs.push_back({"one node, " + std::string(nccl_name(gpu)),
                     [gpu](auto&, auto& m) { return one_node(m) && m.machine.gpu == gpu; },
                     {}});
  }
  specs.push_back({"every table", [](auto&, auto&) { return true; }, {}});
  for (int c = 0; c <= static_cast<int>(NcclCollective::kBroadcast); ++c) {
    const auto collective = static_cast<NcclCollective>(c);
    specs.push_back({"held out, two H200: " + std::string(nccl_name(collective)),
                     [collective](auto&, auto& m) { return m.row.collective == collective; },
                     {},
                     true});
  }
  return specs;
}

ErrorBand band_of(const Band& band, const GroupSpec& spec, const std::vector<CollectiveTable>& tables,
                  const std::vector<PredictedCollective>& predictions) {
  std::vector<double> errors;
  for (const PredictedCollective& p : predictions) {
    const CollectiveTable& table = tables[p.table];
    if (p.row->row.bytes < band.from || p.row->row.bytes >= band.to) continue;
    if (table.held_out != spec.held_out || !spec.holds(table, *p.row)) continue;
    errors.push_back(100 * std::abs(p.error));
  }
  ErrorBand out;
  out.name = band.name;
  out.rows = errors.size();
  if (!errors.empty()) {
    out.median = quantile(errors, 0.5);
    out.p90 = quantile(errors, 0.9);
  }
  for (const Target& target : spec.targets) {
    if (out.name != target.band) continue;
    out.target_median = target.median;
    out.target_p90 = target.p90;
  }
  return out;
}

TableError table_error(const CollectiveTable& table, std::size_t index,
                       const std::vector<PredictedCollective>& predictions) {
  std::vector<double> absolute;
  std::vector<double> with_sign;
  for (const PredictedCollective& p : predictions) {
    if (p.table != index) continue;
    absolute.push_back(100 * std::abs(p.error));
    with_sign.push_back(100 * p.error);
  }
  TableError out;
  out.name = table.name;
  out.rows = absolute.size();
  out.median = quantile(absolute, 0.5);
  out.p90 = quantile(absolute, 0.9);
  out.bias = quantile(with_sign, 0.5);
  out.misses = out.median > kMissing;
  if (table.held_out) {
    out.reason = table.not_fitted;
  } else if (!table.not_fitted.empty()) {
    out.reason = "not fitted: " + table.not_fitted;
  } else if (!table.harness_only.empty()) {
    out.reason = "fitted to the harness alone: " + table.harness_only;
  } else if (out.misses) {
    out.reason = table.hard.empty() ? "no reason known" : table.hard;
  }
  return out;
}

}  // namespace

bool ErrorBand::met() const {
  if (rows == 0 || !target_median || !target_p90) return true;
  return median <= *target_median && p90 <= *target_p90;
}

std::vector<PredictedCollective> leave_one_table_out(const std::vector<CollectiveTable>& tables, LeaveOut leave_out,
                                                     int threads) {
  LH_ASSERT(threads >= 1, "{} threads", threads);
  std::vector<NcclConstants> constants(tables.size());
  std::atomic<std::size_t> next = 0;
  // All tables that are not fitted are predicted by one fit, unless it leaves out their twins.
  const auto whole = std::find_if(tables.begin(), tables.end(), [](auto& table) { return !table.not_fitted.empty(); });
  const auto as_whole = [&](std::size_t i) { return leave_out == LeaveOut::kTable && !tables[i].not_fitted.empty(); };
  const auto work = [&] {
    for (std::size_t i = next++; i < tables.size(); i = next++) {
      if (as_whole(i) && tables.begin() + static_cast<std::ptrdiff_t>(i) != whole) continue;
      constants[i] = fit_collectives(rows_without(tables, i, leave_out), prior_places()).constants;
    }
  };
  {
    std::vector<std::jthread> workers;
    for (int i = 1; i < threads; ++i) workers.emplace_back(work);
    work();
  }
  std::vector<PredictedCollective> out;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    if (as_whole(t)) constants[t] = constants[static_cast<std::size_t>(whole - tables.begin())];
    for (const CollectiveMeasurement& row : tables[t].rows) {
      const NcclTime time = predict(constants[t], row);
      out.push_back({t, &row, time, time.total_us() / row.measured_us - 1});
    }
  }
  return out;
}

CollectiveAccuracy summarise(const std::vector<CollectiveTable>& tables,
                             const std::vector<PredictedCollective>& predictions) {
  CollectiveAccuracy out;
  for (const GroupSpec& spec : group_specs()) {
    ErrorGroup group;
    group.name = spec.name;
    std::size_t rows = 0;
    for (const Band& band : bands()) {
      group.bands.push_back(band_of(band, spec, tables, predictions));
      rows += group.bands.back().rows;
    }
    if (rows > 0) out.groups.push_back(std::move(group));
  }
  for (std::size_t t = 0; t < tables.size(); ++t) out.tables.push_back(table_error(tables[t], t, predictions));
  for (const PredictedCollective& p : predictions) out.rows.push_back({p.table, p.row, p.predicted, 100 * p.error});
  return out;
}

}  // namespace longhaul
