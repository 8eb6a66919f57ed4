#include "validate/gpu/calibrate/fit_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "sim/core/order_statistics.h"
#include "sim/cost/calibration.h"
#include "sim/cost/estimate.h"
#include "validate/fit/residuals.h"

namespace longhaul {
namespace {

constexpr double kCountedSeconds = 5e-5, kMostSpread = 0.1;

struct Head {
  std::string date, machine;
};

// Lines of the text one by one, without their ends.
template <class Visit>
void each_line(const std::string& text, const Visit& visit) {
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    visit(std::string_view(text).substr(from, end - from));
    from = end + 1;
  }
}

Head head_of(const std::string& text) {
  Head head;
  each_line(text, [&](std::string_view line) {
    if (!line.starts_with("# ")) return;
    line.remove_prefix(2);
    if (line.starts_with("date: ")) head.date = line.substr(6);
    for (const std::string_view name : {"device: ", "driver: ", "libraries: "}) {
      if (line.starts_with(name)) head.machine += fmt::format("{}{}", head.machine.empty() ? "" : "; ", line);
    }
  });
  return head;
}

}  // namespace

Expected<KernelFit> fit_calibration_rows(const std::string& text, const std::string& file, const DeviceSpec& device,
                                         const Calibration& base) {
  Errors errors;
  const Head head = head_of(text);
  if (head.date.empty())
    errors.push_back({file, "", "has no line \"# date: ...\"", "a file of longhaul calibrate", ""});
  const Expected<std::vector<KernelRow>> rows = parse_kernel_rows(text, file);
  if (!rows) {
    append(errors, rows.error());
  } else if (rows->empty()) {
    errors.push_back({file, "", "has no row whose clock held", "measured calls", ""});
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  MeasuredDevice measured;
  measured.name = device.name;
  measured.date = head.date;
  measured.machine = head.machine;
  measured.peak_flops_per_second = device.bf16_dense.value;
  measured.memory_bytes_per_second = device.memory_bandwidth.value;
  measured.host_link_bytes_per_second = device.host_link.value;
  measured.multiprocessors = device.multiprocessors;
  return fit_kernels(measured, *rows, base);
}

std::vector<ClassErrors> class_errors(const KernelFit& fit) {
  std::map<std::string, ClassErrors> classes;
  std::map<std::string, std::vector<double>> errors;
  for (const FittedRow& row : fit.rows) {
    if (row.kernel_class.empty()) continue;
    ClassErrors& of = classes[row.kernel_class];
    of.kernel_class = row.kernel_class;
    ++of.rows;
    const double seconds = row.row.seconds;
    if (seconds < kCountedSeconds || row.row.most - row.row.least >= kMostSpread * seconds) continue;
    ++of.counted;
    errors[row.kernel_class].push_back(std::abs(row.held_out / seconds - 1));
    if (row.held_out_low <= seconds && seconds <= row.held_out_high) of.covered += 1;
  }
  std::vector<ClassErrors> result;
  for (auto& [name, of] : classes) {
    if (of.counted > 0) {
      of.median = quantile(errors[name], 0.5);
      of.p90 = quantile(errors[name], 0.9);
      of.covered /= static_cast<double>(of.counted);
    }
    result.push_back(of);
  }
  return result;
}

Expected<Calibration> base_calibration(const DeviceSpec& device, const std::string& data_directory) {
  const Expected<KernelModel> model = load_kernel_model(device, data_directory);
  if (!model) return tl::unexpected(model.error());
  return read_calibration(
      fmt::format("{}/topologies/devices/calibration/{}.json", data_directory, model->calibration_name()));
}

}  // namespace longhaul
