#include "validate/accuracy/kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>

#include "sim/cluster/topology.h"
#include "sim/core/order_statistics.h"
#include "sim/cost/cost_rows.h"
#include "sim/cost/estimate.h"
#include "validate/fit/fit.h"
#include "validate/fit/h200_tables.h"
#include "validate/fit/residuals.h"
#include "validate/fit/row_class.h"

namespace longhaul {
namespace {

constexpr double kLeastSeconds = 5e-5;
constexpr double kMostSpread = 0.1;
constexpr std::size_t kRowsOfACoverage = 20;
constexpr double kLeastCovered = 85;  // percent
constexpr double kMostCovered = 97;

bool counts(const FittedRow& row) {
  return !row.kernel_class.empty() && row.row.seconds >= kLeastSeconds && spread_of(row.row) < kMostSpread;
}

using RowFilter = std::function<bool(const FittedRow&)>;

KernelErrors errors_of(std::string kind, std::string name, const std::vector<FittedRow>& rows, const RowFilter& holds) {
  KernelErrors out;
  out.kind = std::move(kind);
  out.name = std::move(name);
  std::vector<double> sizes, signs;
  std::size_t inside = 0;
  for (const FittedRow& row : rows) {
    if (!counts(row) || !holds(row)) continue;
    const double error = 100 * (row.held_out / row.row.seconds - 1);
    sizes.push_back(std::abs(error));
    signs.push_back(error);
    inside += row.held_out_low <= row.row.seconds && row.row.seconds <= row.held_out_high ? 1 : 0;
  }
  out.rows = sizes.size();
  if (out.rows == 0) return out;
  out.median = quantile(sizes, 0.5);
  out.p90 = quantile(sizes, 0.9);
  out.bias = quantile(signs, 0.5);
  out.covered = 100 * static_cast<double>(inside) / static_cast<double>(out.rows);
  return out;
}

bool of(const FittedRow& row, const char* start) { return row.kernel_class.starts_with(start); }
bool block_diffusion(const FittedRow& row) { return row.row.mask.starts_with("block-diffusion"); }

struct TargetSpec {
  const char* name;
  double median;
  std::optional<double> p90;
  RowFilter holds;
};

// Issue figures: rows that no fit saw, of 0.05 ms and more with a spread under 10 %.
std::vector<TargetSpec> target_specs() {
  return {
      {"gemm", 2.5, 7, [](auto& row) { return of(row, "gemm"); }},
      {"attention, cuDNN, single sequences and batches", 3.5, 9,
       [](auto& row) { return of(row, "attention/cudnn/") && row.kernel_class.ends_with("/dense"); }},
      {"attention, cuDNN, packed, sharded, sliced lists", 5, 12,
       [](auto& row) { return of(row, "attention/cudnn/") && !row.kernel_class.ends_with("/dense"); }},
      {"attention, our kernels, block diffusion", 5, std::nullopt,
       [](auto& row) { return of(row, "attention/longhaul") && block_diffusion(row); }},
      {"attention, our kernels, all other lists", 5, 12,
       [](auto& row) { return of(row, "attention/longhaul") && !block_diffusion(row); }},
      {"elementwise", 5, std::nullopt, [](auto& row) { return of(row, "elementwise"); }},
      {"copies", 5, std::nullopt, [](auto& row) { return of(row, "copy"); }},
  };
}

void add_targets(const std::vector<FittedRow>& rows, std::vector<KernelErrors>& out) {
  for (const TargetSpec& spec : target_specs()) {
    KernelErrors errors = errors_of("target", spec.name, rows, spec.holds);
    errors.target_median = spec.median;
    errors.target_p90 = spec.p90;
    errors.covers = true;
    out.push_back(std::move(errors));
  }
}

void add_regions(const std::vector<FittedRow>& rows, std::vector<KernelErrors>& out) {
  struct Region {
    const char* name;
    double from, to;
  };
  for (const Region& region : {Region{"0.05 to 0.2 ms", kLeastSeconds, 2e-4}, Region{"0.2 to 1 ms", 2e-4, 1e-3},
                               Region{"1 to 5 ms", 1e-3, 5e-3}, Region{"from 5 ms", 5e-3, 1e9}}) {
    for (const char* op : {"gemm", "attention", "elementwise", "copy"}) {
      KernelErrors errors = errors_of("region", std::string(op) + ", " + region.name, rows, [&](const FittedRow& row) {
        return row.row.op == op && row.row.seconds >= region.from && row.row.seconds < region.to;
      });
      if (errors.rows > 0) out.push_back(std::move(errors));
    }
  }
}

// By any text of a row, in the order of the texts.
void add_by(const char* kind, const std::vector<FittedRow>& rows, std::vector<KernelErrors>& out,
            const std::function<std::string(const FittedRow&)>& key) {
  std::map<std::string, int> keys;
  for (const FittedRow& row : rows) {
    if (counts(row)) ++keys[key(row)];
  }
  for (const auto& [name, count] : keys) {
    out.push_back(errors_of(kind, name, rows, [&](const FittedRow& row) { return key(row) == name; }));
  }
}

std::string file_name(const FittedRow& row) {
  const std::filesystem::path path(row.row.file);
  return (path.parent_path().filename() / path.filename()).string();
}

// Published rows stand in validate/data/kernels/DEVICE.csv.
std::string device_of(const FittedRow& row) { return std::filesystem::path(row.row.file).stem().string(); }

// What the model says of a call whose class the calibration has not: as a study would have it.
Estimate estimate_without_class(const KernelModel& model, const KernelRow& row, const RowClass& of) {
  if (row.op != "attention") return *model.of_class("elementwise", of.call);
  const auto pieces = parse_pieces(row.pieces, row.mask);
  return row.pass == "fwd" ? model.attention_forward(*pieces, row.q_heads, row.kv_heads, row.head_dim)
                           : model.attention_backward(*pieces, row.q_heads, row.kv_heads, row.head_dim);
}

// What the shipped model says of the rows in place of a held-out prediction. Launches are left out.
Expected<std::vector<FittedRow>> predict_shipped(const std::string& data_directory, const std::string& device,
                                                 const std::vector<KernelRow>& rows) {
  const Expected<DeviceSpec> spec = read_device(device, data_directory);
  if (!spec) return tl::unexpected(spec.error());
  const Expected<KernelModel> model = load_kernel_model(*spec, data_directory);
  if (!model) return tl::unexpected(model.error());
  std::vector<FittedRow> out;
  Errors errors;
  for (const KernelRow& row : rows) {
    if (row.op == "launch") continue;
    const std::optional<RowClass> of = row_class(row, spec->multiprocessors);
    if (!of) {
      errors.push_back({row.file, fmt::format("line {}", row.line),
                        fmt::format("{} has no one call for mask \"{}\"", row.impl, row.mask),
                        "rows of calls that the library makes", ""});
      continue;
    }
    const std::optional<Estimate> known = model->of_class(of->name, of->call);
    const Estimate queued = known ? *known : estimate_without_class(*model, row, *of);
    const Estimate estimate = row.with_launch ? KernelModel::timed_alone(queued) : queued;
    out.push_back({row, of->name, estimate.seconds, estimate.seconds, estimate.low, estimate.high});
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return out;
}

}  // namespace

bool KernelErrors::met() const {
  if (rows == 0 || !target_median) return true;
  return median <= *target_median && (!target_p90 || p90 <= *target_p90);
}

bool KernelErrors::covered_well() const {
  return !covers || rows < kRowsOfACoverage || (covered >= kLeastCovered && covered <= kMostCovered);
}

Expected<KernelAccuracy> rows_accuracy(const std::string& data_directory, const std::string& device,
                                       const std::string& file) {
  const Expected<std::vector<KernelRow>> rows = read_kernel_rows(file);
  if (!rows) return tl::unexpected(rows.error());
  Expected<std::vector<FittedRow>> predicted = predict_shipped(data_directory, device, *rows);
  if (!predicted) return tl::unexpected(predicted.error());
  return summarise_kernels(std::move(*predicted), {});
}

KernelAccuracy summarise_kernels(std::vector<FittedRow> rows, std::vector<FittedRow> aside) {
  KernelAccuracy out;
  add_targets(rows, out.groups);
  add_by("class", rows, out.groups, [](const FittedRow& row) { return row.kernel_class; });
  add_by("pass", rows, out.groups,
         [](const FittedRow& row) { return row.row.pass.empty() ? row.row.op : row.row.op + " " + row.row.pass; });
  add_regions(rows, out.groups);
  add_by("file", rows, out.groups, file_name);
  add_by("aside (another day, other methods)", aside, out.groups,
         [](const FittedRow& row) { return file_name(row) + ", " + row.kernel_class; });
  out.rows = std::move(rows);
  out.aside = std::move(aside);
  return out;
}

void add_published(const std::vector<PublishedFit>& fits, KernelAccuracy& accuracy) {
  std::vector<FittedRow> shipped;
  for (const PublishedFit& fit : fits) {
    accuracy.published.insert(accuracy.published.end(), fit.rows.begin(), fit.rows.end());
    accuracy.published_aside.insert(accuracy.published_aside.end(), fit.aside.begin(), fit.aside.end());
    shipped.insert(shipped.end(), fit.shipped.begin(), fit.shipped.end());
  }
  const auto by_class = [](const FittedRow& row) { return device_of(row) + ", " + row.kernel_class; };
  add_by("published, its table left out", accuracy.published, accuracy.groups, by_class);
  add_by("published, as shipped", shipped, accuracy.groups, by_class);
  add_by("published, aside", accuracy.published_aside, accuracy.groups,
         [](const FittedRow& row) { return device_of(row) + ", " + group_of(row.row) + ", " + row.kernel_class; });
}

Expected<KernelAccuracy> kernel_accuracy(const std::string& data_directory) {
  Expected<Fit> fit = fit_h200(data_directory + "/validate/data/h200");
  const std::string tables = data_directory + "/validate/data/h200";
  const Expected<std::vector<KernelRow>> aside_rows = read_h200_aside(tables);
  Expected<std::vector<FittedRow>> aside =
      aside_rows ? predict_shipped(data_directory, "h200", *aside_rows) : tl::unexpected(aside_rows.error());
  Errors errors;
  if (!fit) errors = fit.error();
  if (!aside) append(errors, aside.error());
  std::vector<PublishedFit> published;
  for (const std::string& device : published_devices()) {
    if (!fit) break;
    Expected<PublishedFit> one = fit_published(device, data_directory, fit->calibration());
    if (!one) append(errors, one.error());
    if (one) published.push_back(std::move(*one));
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  KernelAccuracy out = summarise_kernels(std::move(fit->kernels.rows), std::move(*aside));
  add_published(published, out);
  return out;
}

}  // namespace longhaul
