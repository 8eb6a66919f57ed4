#include "sim/cost/estimate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "sim/core/invariant.h"
#include "sim/cost/attention_library.h"
#include "sim/cost/calibration.h"
#include "sim/cost/eager_kernels.h"
#include "sim/cost/kernel_features.h"

namespace longhaul {
namespace {

// Outside the measured sizes the leave-one-out residuals say little, and on another device less: the interval is
// widened by these factors. They are judgement, not measurement; docs/accuracy-log.md says so.
constexpr double kExtrapolatedWidening = 2;
constexpr double kDatasheetWidening = 3;
constexpr double kDatasheetLeast = 0.25;  // least relative half-width for a device that was not measured
constexpr double kLowestFactor = 0.1;     // an interval never reaches down to nothing
constexpr double kLeastSeconds = 1e-7;    // no kernel is shorter
constexpr const char* kMeasuredLibrary = "cudnn";
constexpr std::int64_t kHopperHeadDim = 128;  // of our wgmma kernels

struct Relative {
  double low = 0;   // <= 0
  double high = 0;  // >= 0
};

Relative widened(const ResidualBand& band, Basis basis) {
  switch (basis) {
    case Basis::kExtrapolated:
      return {band.low * kExtrapolatedWidening, band.high * kExtrapolatedWidening};
    case Basis::kDatasheet:
      return {std::min(band.low * kDatasheetWidening, -kDatasheetLeast),
              std::max(band.high * kDatasheetWidening, kDatasheetLeast)};
    case Basis::kCalibrated:
    case Basis::kInterpolated:
      break;
  }
  return {band.low, band.high};
}

Basis basis_of(const KernelCalibration& kernel, const SizeKey& key) {
  if (std::binary_search(kernel.measured.begin(), kernel.measured.end(), key)) return Basis::kCalibrated;
  for (std::size_t i = 0; i < key.size(); ++i) {
    if (key[i] < kernel.lowest[i] || key[i] > kernel.highest[i]) return Basis::kExtrapolated;
  }
  return Basis::kInterpolated;
}

bool is_attention(KernelKind kind) {
  return kind == KernelKind::kAttentionForwardDense || kind == KernelKind::kAttentionForwardRagged ||
         kind == KernelKind::kAttentionBackwardDense || kind == KernelKind::kAttentionBackwardRagged;
}

// kDatasheet where neither the device nor the class was measured, else as far as the source says.
Basis known_basis(const KernelCalibration& kernel, bool measured) {
  return measured && kernel.source != ClassSource::kDatasheet ? Basis::kInterpolated : Basis::kDatasheet;
}

Basis overlap_basis(const Calibration& calibration, bool measured) {
  return measured && calibration.overlap_source != ClassSource::kDatasheet ? Basis::kInterpolated : Basis::kDatasheet;
}

// Which classes stand on published tables, and what the others do; empty if none does.
std::string published_text(const Calibration& calibration) {
  std::vector<std::string> names;
  for (const auto& [name, kernel] : calibration.classes) {
    if (kernel.source == ClassSource::kPublished) names.push_back(name);
  }
  if (names.empty()) return "";
  return fmt::format("published tables of {}; all else: {}", fmt::join(names, ", "), calibration.machine);
}

// Ratio >= 1 by which two devices differ: peak times bandwidth, each as the larger over the smaller.
double distance(const DeviceSpec& device, const Calibration& calibration) {
  const auto apart = [](double a, double b) { return a > b ? a / b : b / a; };
  return apart(device.bf16_dense.value, calibration.peak_flops_per_second) *
         apart(device.memory_bandwidth.value, calibration.memory_bytes_per_second);
}

}  // namespace

const char* basis_name(Basis basis) {
  switch (basis) {
    case Basis::kCalibrated:
      return "calibrated";
    case Basis::kInterpolated:
      return "interpolated";
    case Basis::kExtrapolated:
      return "extrapolated";
    case Basis::kDatasheet:
      return "datasheet";
  }
  LH_ASSERT(false, "unknown basis");
}

KernelModel::KernelModel(DeviceSpec device, std::shared_ptr<const Calibration> calibration)
    : device_(std::move(device)), calibration_(std::move(calibration)), measured_(device_.name == calibration_->name) {
  LH_ASSERT(device_.bf16_dense.value > 0 && device_.memory_bandwidth.value > 0 && device_.multiprocessors > 0 &&
                device_.host_link.value > 0,
            "device {} has a rate that is not positive", device_.name);
}

// How much longer a term of this kind takes than on the measured device.
double KernelModel::scale(TermKind kind) const {
  if (measured_) return 1;
  const double peak = calibration_->peak_flops_per_second / device_.bf16_dense.value;
  switch (kind) {
    case TermKind::kFixed:
      return 1;
    case TermKind::kMultiprocessor:
      return peak * device_.multiprocessors / static_cast<double>(calibration_->multiprocessors);
    case TermKind::kDevice:
      return peak;
    case TermKind::kMemory:
      return calibration_->memory_bytes_per_second / device_.memory_bandwidth.value;
    case TermKind::kHostLink:
      return calibration_->host_link_bytes_per_second / device_.host_link.value;
  }
  LH_ASSERT(false, "unknown term kind");
}

Estimate KernelModel::estimate(const KernelCalibration& kernel, std::string_view kernel_class,
                               const KernelCall& call) const {
  double alone = 0;
  std::size_t i = 0;
  for (const TermSpec& term : *terms_of_class(kernel_class)) {
    alone += kernel.constants[i] * scale(term.kind) * call.terms[i];
    ++i;
  }
  // Roofline: no kernel is faster than a copy of its operands, at the rate that large copies reach.
  const double per_byte = calibration_->kernel(KernelKind::kCopyDeviceToDevice).constants[1] * scale(TermKind::kMemory);
  alone = std::max(alone, kernel.constants[0] + per_byte * call.memory_bytes);

  Estimate out;
  out.hidden = kernel.timed_alone_seconds;
  out.seconds = std::max(alone - out.hidden, kLeastSeconds);
  out.basis = known_basis(kernel, measured_);
  if (out.basis != Basis::kDatasheet) out.basis = basis_of(kernel, call.key);
  const Relative ends = widened(out.seconds < kernel.small_call_seconds ? kernel.small : kernel.large, out.basis);
  out.low = out.seconds * std::max(1 + ends.low, kLowestFactor);
  out.high = out.seconds * (1 + ends.high);
  return out;
}

// Forms without a class of their own run as the next more general one that was measured.
Estimate KernelModel::attention(bool forward, const AttentionWork& work, std::int64_t q_heads, std::int64_t kv_heads,
                                std::int64_t head_dim) const {
  if (attention_library_ != nullptr) return library_estimate(forward, work, q_heads, kv_heads, head_dim);
  AttentionLayout layout = attention_layout(kMeasuredLibrary);
  // Where only key rows are shared and our kernels have no tensor cores, nobody would take them: the library's rate
  // stands for a call of its own for each piece.
  const bool hopper = device_.generation == GpuGeneration::kHopper && head_dim == kHopperHeadDim;
  if (!one_call(layout, work, true) || (hopper && !one_call(layout, work, forward))) {
    const char* own = hopper ? "longhaul-hopper" : "longhaul-portable";
    const std::string name = attention_class(own, forward, AttentionForm::kPieces);
    if (const KernelCalibration* kernel = calibration_->find(name)) {
      layout = attention_layout(own);
      return estimate(*kernel, name,
                      attention_call(layout, forward, work, q_heads, kv_heads, head_dim, device_.multiprocessors));
    }
  }
  const KernelCall call = attention_call(layout, forward, work, q_heads, kv_heads, head_dim, device_.multiprocessors);
  const AttentionForm wanted = attention_form(layout, work);
  for (const AttentionForm form : {AttentionForm::kRaggedOffset, AttentionForm::kRagged, AttentionForm::kDense}) {
    if (form > wanted) continue;
    const std::string name = attention_class(kMeasuredLibrary, forward, form);
    if (const KernelCalibration* kernel = calibration_->find(name)) return estimate(*kernel, name, call);
  }
  LH_ASSERT(false, "a calibration without dense attention");
}

Estimate KernelModel::gemm(GemmPass /*pass*/, std::int64_t m, std::int64_t n, std::int64_t k) const {
  return estimate(calibration_->kernel(KernelKind::kGemm), kernel_kind_name(KernelKind::kGemm),
                  gemm_call(m, n, k, device_.multiprocessors));
}

Estimate KernelModel::attention_forward(const AttentionWork& work, std::int64_t q_heads, std::int64_t kv_heads,
                                        std::int64_t head_dim) const {
  return attention(true, work, q_heads, kv_heads, head_dim);
}

Estimate KernelModel::attention_backward(const AttentionWork& work, std::int64_t q_heads, std::int64_t kv_heads,
                                         std::int64_t head_dim) const {
  return attention(false, work, q_heads, kv_heads, head_dim);
}

Estimate KernelModel::attention_forward(std::span<const AttentionPieceSize> pieces, std::int64_t q_heads,
                                        std::int64_t kv_heads, std::int64_t head_dim) const {
  return attention_forward(attention_work(pieces), q_heads, kv_heads, head_dim);
}

Estimate KernelModel::attention_backward(std::span<const AttentionPieceSize> pieces, std::int64_t q_heads,
                                         std::int64_t kv_heads, std::int64_t head_dim) const {
  return attention_backward(attention_work(pieces), q_heads, kv_heads, head_dim);
}

Estimate KernelModel::elementwise(Bytes read_and_written) const {
  const KernelCall call = elementwise_call(read_and_written);
  return estimate(calibration_->kernel(call.kind), kernel_kind_name(call.kind), call);
}

Estimate KernelModel::elementwise(Bytes read_and_written, std::string_view function, std::int64_t rows,
                                  std::int64_t columns) const {
  const std::string name = fmt::format("elementwise/{}", function);
  const KernelCalibration* kernel = calibration_->find(name);
  if (kernel == nullptr) return elementwise(read_and_written);
  return estimate(*kernel, name, elementwise_call(read_and_written, function, rows, columns));
}

Estimate KernelModel::copy(CopyKind kind, Bytes payload) const {
  const KernelCall call = copy_call(kind, payload);
  return estimate(calibration_->kernel(call.kind), kernel_kind_name(call.kind), call);
}

std::optional<Estimate> KernelModel::of_class(std::string_view kernel_class, const KernelCall& call) const {
  const KernelCalibration* kernel = calibration_->find(kernel_class);
  if (kernel == nullptr) return std::nullopt;
  return estimate(*kernel, kernel_class, call);
}

std::optional<Estimate> KernelModel::eager(std::string_view kind, Bytes read_and_written) const {
  const EagerKernelTimes* times = eager_ == nullptr ? nullptr : eager_->kernel(kind);
  if (times == nullptr) return std::nullopt;
  double slower = eager_->measured_memory_bytes_per_second / device_.memory_bandwidth.value;
  const double clocks = multiprocessor_clocks(device_);
  if (!times->memory_bound && clocks > 0) slower = eager_->measured_multiprocessor_clocks / clocks;
  Estimate out = elementwise(read_and_written);
  const double seconds =
      times->wait_seconds + times->seconds_per_byte * slower * static_cast<double>(read_and_written.value);
  ResidualBand band;
  band.low = times->low;
  band.high = times->high;
  const Relative ends = widened(band, out.basis == Basis::kDatasheet ? Basis::kDatasheet : Basis::kInterpolated);
  out.seconds = std::max(out.seconds, seconds);
  out.low = out.seconds * std::max(1 + ends.low, kLowestFactor);
  out.high = out.seconds * (1 + ends.high);
  return out;
}

std::optional<double> KernelModel::eager_issue_seconds(std::string_view kind) const {
  const EagerKernelTimes* times = eager_ == nullptr ? nullptr : eager_->kernel(kind);
  if (times == nullptr) return std::nullopt;
  return times->host_seconds;
}

double KernelModel::eager_wait_seconds(std::string_view kind) const {
  const EagerKernelTimes* times = eager_ == nullptr ? nullptr : eager_->kernel(kind);
  return times == nullptr ? 0 : times->wait_seconds;
}

double KernelModel::stall_seconds(std::string_view kind, std::int64_t pieces) const {
  const HostStallTimes* times = eager_ == nullptr ? nullptr : eager_->stall(kind);
  return times == nullptr ? 0 : times->seconds + times->seconds_per_piece * static_cast<double>(pieces);
}

bool KernelModel::attention_starts_with_main_kernel(bool forward) const {
  return attention_library_ != nullptr && attention_library_->pass(forward).starts_with_main_kernel;
}

KernelModel KernelModel::with_eager_kernels(std::shared_ptr<const EagerKernels> eager) const {
  KernelModel other = *this;
  other.eager_ = std::move(eager);
  return other;
}

double KernelModel::launch_seconds() const { return calibration_->launch_seconds; }

OverlapModel KernelModel::overlap() const {
  const double per_byte = calibration_->kernel(KernelKind::kCopyDeviceToDevice).constants[1] * scale(TermKind::kMemory);
  return OverlapModel(calibration_->overlap, device_.multiprocessors, BytesPerSecond{1 / per_byte}, device_.host_link,
                      overlap_scale_);
}

KernelModel KernelModel::with_overlap_scale(double scale) const {
  LH_ASSERT(scale >= 0, "overlap scaled by {}", scale);
  KernelModel other = *this;
  other.overlap_scale_ = scale;
  return other;
}

KernelModel KernelModel::with_attention_library(std::shared_ptr<const AttentionLibrary> library) const {
  LH_ASSERT(library == nullptr || library->runs_on(device_), "{} does not run on {}", library->name, device_.name);
  KernelModel other = *this;
  other.attention_library_ = std::move(library);
  return other;
}

// The generation's rows are the library's: nothing tells sizes inside them from sizes outside.
Estimate KernelModel::library_estimate(bool forward, const AttentionWork& work, std::int64_t q_heads,
                                       std::int64_t kv_heads, std::int64_t head_dim) const {
  const KernelKind kind = forward ? KernelKind::kAttentionForwardRagged : KernelKind::kAttentionBackwardRagged;
  Estimate out;
  out.seconds = library_attention_seconds(*attention_library_, device_, forward, work, q_heads, kv_heads, head_dim);
  out.basis = attention_library_->measured_on(device_) ? Basis::kInterpolated : Basis::kDatasheet;
  out.low = out.seconds * std::max(1 + library_residual(kind, true), kLowestFactor);
  out.high = out.seconds * (1 + library_residual(kind, false));
  return out;
}

double KernelModel::library_residual(KernelKind kernel, bool low) const {
  const bool forward = kernel == KernelKind::kAttentionForwardDense || kernel == KernelKind::kAttentionForwardRagged;
  const AttentionLibraryPass& pass = attention_library_->pass(forward);
  ResidualBand band;
  band.low = pass.residual_low;
  band.high = pass.residual_high;
  const Basis basis = attention_library_->measured_on(device_) ? Basis::kInterpolated : Basis::kDatasheet;
  return low ? std::max(widened(band, basis).low, kLowestFactor - 1) : widened(band, basis).high;
}

const std::string& KernelModel::calibration_name() const { return calibration_->name; }

const std::string& KernelModel::calibration_date() const { return calibration_->date; }

std::string KernelModel::description() const {
  const std::string published = published_text(*calibration_);
  std::string text = fmt::format("kernels: measured on {}, {}", calibration_->name, calibration_->date);
  if (!published.empty()) {
    text = fmt::format("kernels of {}, {}: {}", calibration_->name, calibration_->date, published);
  }
  if (!measured_) {
    text = fmt::format(
        "kernels: {} was not measured; times of {} ({}) scaled by peak, bandwidth and multiprocessors of the data "
        "sheet, slow-down beside communication as measured there",
        device_.name, calibration_->name, calibration_->date);
    if (!published.empty()) text = fmt::format("{} ({}: {})", text, calibration_->name, published);
  }
  if (attention_library_ == nullptr) return text;
  return fmt::format("{}; attention: {} ({}){}", text, attention_library_->name, attention_library_->date,
                     attention_library_->measured_on(device_) ? "" : ", not measured on this generation");
}

double KernelModel::residual(KernelKind kernel, bool low) const {
  if (attention_library_ != nullptr && is_attention(kernel)) return library_residual(kernel, low);
  const KernelCalibration* first = &calibration_->kernel(kernel);
  const KernelCalibration* second = first;
  if (kernel == KernelKind::kAttentionForwardRagged || kernel == KernelKind::kAttentionBackwardRagged) {
    const bool forward = kernel == KernelKind::kAttentionForwardRagged;
    const auto* offset = calibration_->find(attention_class(kMeasuredLibrary, forward, AttentionForm::kRaggedOffset));
    if (offset != nullptr) second = offset;
  }
  const Relative a = widened(first->large, known_basis(*first, measured_));
  const Relative b = widened(second->large, known_basis(*second, measured_));
  return low ? std::max(std::min(a.low, b.low), kLowestFactor - 1) : std::max(a.high, b.high);
}

double KernelModel::residual_low(KernelKind kernel) const { return residual(kernel, true); }

double KernelModel::residual_high(KernelKind kernel) const { return residual(kernel, false); }

double KernelModel::overlap_residual_low() const {
  return std::max(widened(calibration_->overlap_residuals, overlap_basis(*calibration_, measured_)).low, -1.0);
}

double KernelModel::overlap_residual_high() const {
  return widened(calibration_->overlap_residuals, overlap_basis(*calibration_, measured_)).high;
}

Estimate KernelModel::timed_alone(const Estimate& queued) {
  const double factor = (queued.seconds + queued.hidden) / queued.seconds;
  return {queued.seconds * factor, queued.low * factor, queued.high * factor, queued.basis, 0};
}

Expected<KernelModel> load_kernel_model(const DeviceSpec& device, const std::string& data_directory) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(data_directory) / "topologies" / "devices" / "calibration";
  std::error_code failed;
  std::vector<std::string> files;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (name.ends_with(".json")) files.push_back(entry->path().string());
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) {
    return tl::unexpected(Errors{{folder.string(), "", "holds no kernel calibration", "at least one NAME.json", ""}});
  }
  Errors errors;
  std::shared_ptr<const Calibration> nearest;
  double least = std::numeric_limits<double>::infinity();
  for (const std::string& file : files) {
    Expected<Calibration> calibration = read_calibration(file);
    if (!calibration) {
      append(errors, calibration.error());
      continue;
    }
    const double apart = calibration->name == device.name ? 0 : distance(device, *calibration);
    if (apart < least) {
      least = apart;
      nearest = std::make_shared<const Calibration>(std::move(*calibration));
    }
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return KernelModel(device, std::move(nearest));
}

}  // namespace longhaul
