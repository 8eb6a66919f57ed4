#include "validate/fit/kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>

#include "sim/core/invariant.h"
#include "sim/core/order_statistics.h"
#include "sim/cost/kernel_features.h"
#include "validate/fit/least_squares.h"
#include "validate/fit/residuals.h"
#include "validate/fit/row_class.h"

namespace longhaul {
namespace {

constexpr double kSmallCall = 5e-5;       // below it calls are launch jitter more than work: residuals of their own
constexpr std::size_t kLeastRows = 6;     // of a class that carries constants of its own
constexpr std::size_t kRowsAColumn = 2;   // a term needs so many rows in which it is not zero
constexpr std::size_t kRowsOfABand = 19;  // fewer rows bound less than 90 % by their extremes
constexpr int kFirstTile = 1;             // terms of attention classes
constexpr int kLastTile = 3;
constexpr int kBusy = 4;
constexpr int kQueryBytes = 6;
constexpr int kKeyBytes = 7;
constexpr int kWide = 8;

struct ClassRows {
  std::vector<std::size_t> rows;  // of all rows
  std::vector<Observation> observations;
  std::vector<SizeKey> keys;
  std::vector<std::string> groups;
};

bool is_attention_class(const std::string& name) { return name.starts_with("attention/"); }

// GEMM is fitted by squares. Elsewhere a few rows carry host jitter, clocks or (ragged lists of hundreds of short
// pieces) what the form does not know: the sum of absolute errors keeps outliers from bending the rates.
Loss loss_of(const std::string& kernel_class) { return kernel_class == "gemm" ? Loss::kSquared : Loss::kAbsolute; }

// Terms that these rows can tell: not zero in enough of them; key bytes only where they are not the query bytes again.
std::vector<int> columns_of(const std::string& kernel_class, const std::vector<Observation>& rows) {
  std::vector<int> columns;
  const int count = static_cast<int>(terms_of_class(kernel_class)->size());
  for (int j = 0; j < count; ++j) {
    const auto term = static_cast<std::size_t>(j);
    if (j == 0 && rows.front().known > 0) continue;
    const auto filled = static_cast<std::size_t>(
        std::count_if(rows.begin(), rows.end(), [&](const Observation& row) { return row.terms[term] > 0; }));
    if (filled < kRowsAColumn) continue;
    if (is_attention_class(kernel_class) && j == kKeyBytes &&
        std::all_of(rows.begin(), rows.end(),
                    [](const Observation& row) { return row.terms[kKeyBytes] == row.terms[kQueryBytes]; })) {
      continue;
    }
    columns.push_back(j);
  }
  return columns;
}

// Masks that were not measured cost as much a tile as the dearest that was.
void complete(const std::string& kernel_class, Terms& constants) {
  if (!is_attention_class(kernel_class)) return;
  const auto begin = constants.begin() + kFirstTile;
  const double dearest = *std::max_element(begin, constants.begin() + kLastTile + 1);
  for (auto tile = begin; tile != constants.begin() + kLastTile + 1; ++tile) {
    if (*tile == 0) *tile = dearest;
  }
}

Terms fit_class(const std::string& kernel_class, const std::vector<Observation>& rows) {
  Terms constants = fit_constants(rows, columns_of(kernel_class, rows), loss_of(kernel_class));
  constants[0] += rows.front().known;  // the same in all rows
  complete(kernel_class, constants);
  return constants;
}

// Each row by a fit to the rows of other groups; where too few of these are left, by all other rows.
std::vector<double> held_out(const std::string& kernel_class, const ClassRows& of) {
  std::vector<double> predicted(of.rows.size());
  std::map<std::string, std::optional<Terms>> by_group;
  for (std::size_t i = 0; i < of.rows.size(); ++i) {
    const auto others = [&](auto&& keep) {
      std::vector<Observation> rows;
      for (std::size_t j = 0; j < of.rows.size(); ++j) {
        if (keep(j)) rows.push_back(of.observations[j]);
      }
      return rows;
    };
    const auto [known, fresh] = by_group.try_emplace(of.groups[i]);
    if (fresh) {
      const std::vector<Observation> rows = others([&](std::size_t j) { return of.groups[j] != of.groups[i]; });
      const std::size_t columns = columns_of(kernel_class, of.observations).size();
      if (rows.size() > columns && columns_of(kernel_class, rows).size() == columns) {
        known->second = fit_class(kernel_class, rows);
      }
    }
    const Terms constants =
        known->second ? *known->second : fit_class(kernel_class, others([&](std::size_t j) { return j != i; }));
    predicted[i] = predict(constants, of.observations[i].terms);
  }
  return predicted;
}

struct Split {
  std::vector<double> measured, predicted;
  void add(double m, double p) {
    measured.push_back(m);
    predicted.push_back(p);
  }
};

ResidualBand widened_band(const Split& split) {
  ResidualBand band = band_of(split.measured, split.predicted);
  if (split.measured.size() < kRowsOfABand) {
    const double factor = 1 + kFewRowsWidening / static_cast<double>(split.measured.size());
    band.low = std::max(band.low * factor, kLowestResidual);
    band.high *= factor;
  }
  return band;
}

// The bands of the class but for one group ("" for none).
std::pair<ResidualBand, ResidualBand> bands(const ClassRows& of, const std::vector<double>& predicted,
                                            const std::string& without) {
  Split small, large;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    if (!without.empty() && of.groups[i] == without) continue;
    (predicted[i] < kSmallCall ? small : large).add(of.observations[i].measured, predicted[i]);
  }
  if (large.measured.empty()) large = small;
  if (small.measured.empty()) small = large;
  if (large.measured.empty()) return {};
  return {widened_band(small), widened_band(large)};
}

KernelCalibration calibrate_class(const std::string& kernel_class, const ClassRows& of, std::vector<FittedRow>& rows) {
  KernelCalibration out;
  out.constants = fit_class(kernel_class, of.observations);
  out.small_call_seconds = kSmallCall;
  const std::vector<double> predicted = held_out(kernel_class, of);
  for (std::size_t i = 0; i < of.rows.size(); ++i) {
    FittedRow& row = rows[of.rows[i]];
    row.kernel_class = kernel_class;
    row.fitted = predict(out.constants, of.observations[i].terms);
    row.held_out = predicted[i];
    const auto [small, large] = bands(of, predicted, of.groups[i]);
    const ResidualBand& band = predicted[i] < kSmallCall ? small : large;
    row.held_out_low = predicted[i] * (1 + band.low);
    row.held_out_high = predicted[i] * (1 + band.high);
    out.measured.push_back(of.keys[i]);
  }
  std::tie(out.small, out.large) = bands(of, predicted, "");
  set_range(out);
  return out;
}

// Wide heads are slow in every form of a library's pass: a form without rows of them takes the dense form's part of a
// tile's time.
void share_wide(Calibration& calibration) {
  const auto tile = [](const KernelCalibration& kernel) { return kernel.constants[2] + kernel.constants[kBusy]; };
  for (auto& [name, kernel] : calibration.classes) {
    if (!is_attention_class(name) || kernel.constants[kWide] > 0) continue;
    const KernelCalibration* dense = calibration.find(name.substr(0, name.rfind('/')) + "/dense");
    if (dense == nullptr || dense->constants[kWide] == 0) continue;
    kernel.constants[kWide] = dense->constants[kWide] / tile(*dense) * tile(kernel);
  }
}

KernelCalibration scaled_class(const std::string& name, const KernelCalibration& from, const Calibration& base,
                               const MeasuredDevice& device) {
  KernelCalibration out = from;
  if (base.name == device.name) return out;
  out.source = ClassSource::kDatasheet;
  const double peak = base.peak_flops_per_second / device.peak_flops_per_second;
  std::size_t i = 0;
  for (const TermSpec& term : *terms_of_class(name)) {
    double& constant = out.constants[i++];
    if (term.kind == TermKind::kDevice) constant *= peak;
    if (term.kind == TermKind::kMultiprocessor) {
      constant *= peak * static_cast<double>(device.multiprocessors) / static_cast<double>(base.multiprocessors);
    }
    if (term.kind == TermKind::kMemory) constant *= base.memory_bytes_per_second / device.memory_bytes_per_second;
    if (term.kind == TermKind::kHostLink) {
      constant *= base.host_link_bytes_per_second / device.host_link_bytes_per_second;
    }
  }
  return out;
}

void add_row(ClassRows& of, std::size_t index, const KernelRow& row, const KernelCall& call) {
  of.rows.push_back(index);
  of.observations.push_back({call.terms, row.seconds, 0});
  of.keys.push_back(call.key);
  of.groups.push_back(group_of(row));
}

double latency_of(const std::vector<KernelRow>& rows) {
  double latency = std::numeric_limits<double>::infinity();
  for (const KernelRow& row : rows) {
    if (row.with_launch) latency = std::min(latency, row.seconds);
  }
  return latency;
}

// All measured ragged calls with offsets are long, so a fit alone finds any time per call: they have that of the ragged
// calls without, and launch latency where it was timed with them. Classes come in the order of their names.
void know_call(const std::string& name, const std::vector<KernelRow>& rows, const Calibration& calibration,
               ClassRows& of) {
  if (!name.ends_with("/ragged-offset")) return;
  const KernelCalibration* ragged = calibration.find(name.substr(0, name.rfind('-')));
  if (ragged == nullptr) return;
  const bool with_launch = rows[of.rows.front()].with_launch;
  const double known = ragged->constants[0] + (with_launch ? latency_of(rows) : 0);
  for (Observation& observation : of.observations) {
    if (observation.measured <= 2 * known) return;  // short calls: the fit can tell
  }
  for (Observation& observation : of.observations) observation.known = known;
}

// Launch and event latency is what the shortest call that was timed with it shows.
void split_call_times(const std::map<std::string, ClassRows>& classes, const std::vector<KernelRow>& rows,
                      KernelFit& fit) {
  const double latency = latency_of(rows);
  std::vector<double> launches;
  for (const KernelRow& row : rows) {
    if (row.op == "launch") launches.push_back(row.seconds);
  }
  for (auto& [name, kernel] : fit.calibration.classes) {
    const auto of = classes.find(name);
    if (of == classes.end()) continue;
    const bool with_launch =
        std::any_of(of->second.rows.begin(), of->second.rows.end(), [&](std::size_t i) { return rows[i].with_launch; });
    if (with_launch) kernel.timed_alone_seconds = std::min(kernel.constants[0], latency);
  }
  // Between the two events the host makes two submissions: the launch and the second event.
  if (!launches.empty()) {
    fit.calibration.launch_seconds = quantile(launches, 0.5);
  } else if (std::isfinite(latency)) {
    fit.calibration.launch_seconds = latency / 2;
  }
}

// Rows by class. Elementwise rows count for their function and for all functions together.
std::map<std::string, ClassRows> rows_by_class(const std::vector<KernelRow>& rows, int multiprocessors,
                                               Errors& errors) {
  std::map<std::string, ClassRows> classes;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].op == "launch") continue;
    const std::optional<RowClass> of = row_class(rows[i], multiprocessors);
    if (!of) {
      errors.push_back({rows[i].file, fmt::format("line {}", rows[i].line),
                        fmt::format("{} has no one call for mask \"{}\"", rows[i].impl, rows[i].mask),
                        "rows of calls that the library makes", ""});
      continue;
    }
    add_row(classes[of->name], i, rows[i], of->call);
    if (of->name.starts_with("elementwise/")) add_row(classes["elementwise"], i, rows[i], of->call);
  }
  return classes;
}

}  // namespace

Expected<KernelFit> fit_kernels(const MeasuredDevice& device, const std::vector<KernelRow>& rows,
                                const Calibration& base) {
  Errors errors;
  std::map<std::string, ClassRows> classes = rows_by_class(rows, static_cast<int>(device.multiprocessors), errors);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  KernelFit fit;
  Calibration& out = fit.calibration;
  out.name = device.name;
  out.date = device.date;
  out.machine = device.machine;
  out.peak_flops_per_second = device.peak_flops_per_second;
  out.memory_bytes_per_second = device.memory_bytes_per_second;
  out.host_link_bytes_per_second = device.host_link_bytes_per_second;
  out.multiprocessors = device.multiprocessors;
  out.launch_seconds = base.launch_seconds;
  out.overlap = base.overlap;
  out.overlap_source = base.name.empty() || base.name == device.name ? base.overlap_source : ClassSource::kDatasheet;
  out.overlap_residuals = base.overlap_residuals;
  for (const KernelRow& row : rows) fit.rows.push_back({row, "", 0, 0, 0, 0});
  // "elementwise" comes before its functions, whose rows then say what their own class predicts.
  for (auto& [name, of] : classes) {
    if (of.rows.size() >= kLeastRows) know_call(name, rows, out, of);
    if (of.rows.size() >= kLeastRows) out.classes[name] = calibrate_class(name, of, fit.rows);
  }
  for (const auto& [name, kernel] : base.classes) {
    if (out.classes.count(name) == 0) out.classes[name] = scaled_class(name, kernel, base, device);
  }
  for (const std::string& name : required_classes()) {
    if (out.classes.count(name) > 0) continue;
    const auto found = classes.find(name);
    errors.push_back({device.name, "",
                      fmt::format("{} rows of {}", found == classes.end() ? 0 : found->second.rows.size(), name),
                      fmt::format("at least {}, or a calibration of another device to take it from", kLeastRows), ""});
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  share_wide(out);
  for (const auto& [name, of] : classes) {
    const KernelCalibration* kernel = out.find(name);
    for (std::size_t i = 0; kernel != nullptr && i < of.rows.size(); ++i) {
      FittedRow& row = fit.rows[of.rows[i]];
      if (row.kernel_class == name) row.fitted = predict(kernel->constants, of.observations[i].terms);
    }
  }
  split_call_times(classes, rows, fit);
  return fit;
}

}  // namespace longhaul
