#include "validate/fit/published.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "sim/cost/estimate.h"
#include "validate/fit/residuals.h"
#include "validate/fit/row_class.h"
#include "validate/fit/table.h"

namespace longhaul {
namespace {

constexpr double kSameGeneration = 0.06;
constexpr double kOtherGeneration = 0.15;
constexpr double kNinetyPercent = 1.645;  // standard deviations of a normal variable
constexpr const char* kTables = "published-tables.csv";

// Of a row that the calibration has a class for.
Estimate estimate_of(const KernelModel& model, const RowClass& of) { return *model.of_class(of.name, of.call); }

void scale_work(KernelCalibration& kernel, double factor) {
  for (std::size_t i = 1; i < kernel.constants.size(); ++i) kernel.constants[i] *= factor;
}

// One row with what it says of its class's factor.
struct Told {
  std::size_t row = 0;  // of all rows
  std::string table;
  double ratio = 0;  // log((measured - call) / (prior - call))
  SizeKey key{};
};

using Classes = std::map<std::string, std::vector<Told>>;

std::map<std::string, std::vector<double>> ratios_of(const std::vector<Told>& rows, const std::string& without) {
  std::map<std::string, std::vector<double>> ratios;
  for (const Told& told : rows) {
    if (told.table != without) ratios[told.table].push_back(told.ratio);
  }
  return ratios;
}

// measured / predicted - 1 about the mean of each table.
ResidualBand spread_about_tables(const std::vector<Told>& rows) {
  const auto ratios = ratios_of(rows, "");
  std::vector<double> measured, predicted;
  for (const Told& told : rows) {
    double sum = 0;
    for (const double ratio : ratios.at(told.table)) sum += ratio;
    measured.push_back(std::exp(told.ratio));
    predicted.push_back(std::exp(sum / static_cast<double>(ratios.at(told.table).size())));
  }
  ResidualBand band = band_of(measured, predicted);
  const double factor = 1 + kFewRowsWidening / static_cast<double>(rows.size());
  band.low *= factor;
  band.high *= factor;
  return band;
}

// Errors of the fitted rows stand in `median` and `p90`.
ResidualBand band_of_class(const ResidualBand& base, const ResidualBand& spread, const std::vector<Told>& rows,
                           const WorkFactor& factor) {
  std::vector<double> measured;
  for (const Told& told : rows) measured.push_back(std::exp(told.ratio));
  ResidualBand band = band_of(measured, std::vector<double>(rows.size(), factor.factor));
  const double shared = std::expm1(kNinetyPercent * factor.deviation);
  band.low = std::max(std::min(band.low, -std::hypot(std::min(base.low, spread.low), shared)), kLowestResidual);
  band.high = std::max(band.high, std::hypot(std::max(base.high, spread.high), shared));
  return band;
}

void fit_class(const std::string& name, const std::vector<Told>& rows, const WorkFactor& factor, Calibration& out) {
  KernelCalibration& kernel = out.classes.at(name);
  kernel.source = ClassSource::kPublished;
  scale_work(kernel, factor.factor);
  const ResidualBand spread = spread_about_tables(rows);
  kernel.small = band_of_class(kernel.small, spread, rows, factor);
  kernel.large = band_of_class(kernel.large, spread, rows, factor);
  kernel.measured.clear();
  for (const Told& told : rows) kernel.measured.push_back(told.key);
  set_range(kernel);
  if (!name.ends_with("/dense")) return;
  const std::string pass = name.substr(0, name.rfind('/') + 1);
  for (auto& [other, sibling] : out.classes) {
    if (other != name && other.starts_with(pass)) scale_work(sibling, factor.factor);
  }
}

KernelModel model_of(const DeviceSpec& device, const Calibration& calibration) {
  return KernelModel(device, std::make_shared<const Calibration>(calibration));
}

// Fitted rows by class. Errors: rows of either kind that have no class.
Classes told_by(const DeviceSpec& device, const PublishedRows& rows, const Calibration& prior, Errors& errors) {
  Classes classes;
  const KernelModel model = model_of(device, prior);
  for (std::size_t i = 0; i < rows.rows.size(); ++i) {
    const KernelRow& row = rows.rows[i];
    const std::optional<RowClass> of = row_class(row, device.multiprocessors);
    const KernelCalibration* kernel = of ? prior.find(of->name) : nullptr;
    if (kernel == nullptr) {
      errors.push_back({row.file, fmt::format("line {}", row.line), "is no call that a published table is fitted with",
                        "GEMM, copies, element-wise kernels and attention of one call, of classes that were measured",
                        ""});
      continue;
    }
    const std::string table = group_of(row);
    if (!rows.tables.at(table).fitted) continue;
    const double call = std::max(kernel->constants[0] - kernel->timed_alone_seconds, 0.0);
    const double work = estimate_of(model, *of).seconds - call;
    if (row.seconds <= call || work <= 0) {
      errors.push_back(
          {row.file, fmt::format("line {}", row.line), "takes no longer than a call without work", "longer calls", ""});
      continue;
    }
    classes[of->name].push_back({i, table, std::log((row.seconds - call) / work), of->call.key});
  }
  return classes;
}

Calibration fitted_without(const Calibration& prior, const Classes& classes, const PublishedRows& rows,
                           double deviation, const std::string& table) {
  Calibration out = prior;
  for (const auto& [name, told] : classes) {
    std::vector<Told> others = told;
    std::erase_if(others, [&](const Told& one) { return one.table == table; });
    if (others.empty()) continue;
    fit_class(name, others, work_factor(ratios_of(others, ""), rows.tables, deviation), out);
  }
  return out;
}

FittedRow predicted(const KernelModel& held_out, const KernelModel& fitted, const KernelRow& row, const RowClass& of) {
  const Estimate estimate = estimate_of(held_out, of);
  return {row, of.name, estimate_of(fitted, of).seconds, estimate.seconds, estimate.low, estimate.high};
}

}  // namespace

const std::vector<std::string>& published_devices() {
  static const std::vector<std::string> names = {"a100-80gb", "h100"};
  return names;
}

Expected<PublishedRows> read_published_rows(const std::string& device, const std::string& directory) {
  Errors errors;
  PublishedRows out;
  const std::string tables_file = fmt::format("{}/{}", directory, kTables);
  const auto tables = Table::read(tables_file, {"table", "device", "use", "table_error", "row_error"});
  auto rows = read_kernel_rows(fmt::format("{}/{}.csv", directory, device));
  if (!tables) append(errors, tables.error());
  if (!rows) append(errors, rows.error());
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  for (std::size_t i = 0; i < tables->size(); ++i) {
    if (tables->text(i, "device") != device) continue;
    const std::string& use = tables->text(i, "use");
    const PublishedSource table{use == "fitted", tables->number(i, "table_error"), tables->number(i, "row_error")};
    const std::string line = fmt::format("line {}", tables->line(i));
    if (use != "fitted" && use != "aside") {
      errors.push_back({tables_file, line, fmt::format("use is \"{}\"", use), "fitted or aside", ""});
    }
    if (!(table.table_error > 0 && table.row_error >= 0)) {
      errors.push_back({tables_file, line, "has an error that is not positive", "table_error > 0, row_error >= 0", ""});
    }
    out.tables[tables->text(i, "table")] = table;
  }
  for (const KernelRow& row : *rows) {
    if (out.tables.count(group_of(row)) > 0) continue;
    errors.push_back({row.file, fmt::format("line {}", row.line),
                      fmt::format("table \"{}\" of {} is not listed", group_of(row), device),
                      fmt::format("a row of {}", kTables), ""});
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  out.rows = std::move(*rows);
  return out;
}

double prior_deviation(bool same_generation) { return same_generation ? kSameGeneration : kOtherGeneration; }

WorkFactor work_factor(const std::map<std::string, std::vector<double>>& ratios,
                       const std::map<std::string, PublishedSource>& tables, double prior) {
  WorkFactor out;
  double precision = 1 / (prior * prior);
  double sum = 0;
  for (const auto& [name, of_table] : ratios) {
    const PublishedSource& table = tables.at(name);
    const auto count = static_cast<double>(of_table.size());
    double mean = 0;
    for (const double ratio : of_table) mean += ratio / count;
    const double variance = table.table_error * table.table_error + table.row_error * table.row_error / count;
    sum += mean / variance;
    precision += 1 / variance;
    out.rows += of_table.size();
  }
  out.factor = std::exp(sum / precision);
  out.deviation = 1 / std::sqrt(precision);
  return out;
}

Expected<PublishedFit> fit_published(const DeviceSpec& device, const PublishedRows& rows, const DeviceSpec& base_device,
                                     const Calibration& base) {
  MeasuredDevice sheet;
  sheet.name = device.name;
  sheet.date = kPublishedDate;
  sheet.machine = fmt::format("{} ({}) scaled by the data sheet", base.name, base.date);
  sheet.peak_flops_per_second = device.bf16_dense.value;
  sheet.memory_bytes_per_second = device.memory_bandwidth.value;
  sheet.host_link_bytes_per_second = device.host_link.value;
  sheet.multiprocessors = device.multiprocessors;
  const Expected<KernelFit> scaled = fit_kernels(sheet, {}, base);
  if (!scaled) return tl::unexpected(scaled.error());
  const Calibration& prior = scaled->calibration;

  Errors errors;
  const Classes classes = told_by(device, rows, prior, errors);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  const double deviation = prior_deviation(device.generation == base_device.generation);
  PublishedFit fit;
  for (const auto& [name, told] : classes) fit.factors[name] = work_factor(ratios_of(told, ""), rows.tables, deviation);
  fit.calibration = fitted_without(prior, classes, rows, deviation, "");
  const KernelModel fitted = model_of(device, fit.calibration);
  for (const auto& [name, table] : rows.tables) {
    const KernelModel others = model_of(device, fitted_without(prior, classes, rows, deviation, name));
    for (const KernelRow& row : rows.rows) {
      if (group_of(row) != name) continue;
      const RowClass of = *row_class(row, device.multiprocessors);
      (table.fitted ? fit.rows : fit.aside).push_back(predicted(others, fitted, row, of));
      if (table.fitted) fit.shipped.push_back(predicted(fitted, fitted, row, of));
    }
  }
  return fit;
}

Expected<PublishedFit> fit_published(const std::string& device, const std::string& data_directory,
                                     const Calibration& base) {
  const auto rows = read_published_rows(device, data_directory + "/validate/data/kernels");
  const Expected<DeviceSpec> spec = read_device(device, data_directory);
  const Expected<DeviceSpec> base_spec = read_device(base.name, data_directory);
  Errors errors;
  if (!rows) append(errors, rows.error());
  if (!spec) append(errors, spec.error());
  if (!base_spec) append(errors, base_spec.error());
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return fit_published(*spec, *rows, *base_spec, base);
}

std::vector<std::string> published_files(const std::string& device) {
  return {fmt::format("validate/data/kernels/{}.csv", device), fmt::format("validate/data/kernels/{}", kTables)};
}

std::string report(const PublishedFit& fit) {
  std::string out = fmt::format("{:<42} {:>5} {:>8} {:>10} {:>7} {:>7} {:>16}\n", fit.calibration.name, "rows",
                                "factor", "deviation", "median", "p90", "interval, %");
  for (const auto& [name, factor] : fit.factors) {
    const ResidualBand& band = fit.calibration.find(name)->large;
    out += fmt::format("{:<42} {:>5} {:>8.3f} {:>10.3f} {:>7.1f} {:>7.1f} {:>8.1f} {:>+7.1f}\n", name, factor.rows,
                       factor.factor, factor.deviation, 100 * band.median, 100 * band.p90, 100 * band.low,
                       100 * band.high);
  }
  return out;
}

}  // namespace longhaul
