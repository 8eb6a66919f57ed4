#include <fmt/format.h>

#include <array>
#include <cmath>
#include <stdexcept>

#include "validate/gpu/calibrate/call_order.h"
#include "validate/gpu/calibrate/plan.h"
#include "validate/gpu/calibrate/plan_parts.h"

namespace longhaul {
namespace {

constexpr std::int64_t kHeadDim = 128;
constexpr std::size_t kElementwiseCalls = 143;  // 11 of each kernel
constexpr std::array<std::int64_t, 7> kWidths = {2048, 3584, 4096, 5120, 8192, 11008, 14336};
constexpr std::array<std::int64_t, 3> kVocabularies = {32000, 128256, 152064};
// Three in four move 0.2 to 4 GB: 50 us to 1 ms of an H200. The rest is shorter.
constexpr double kSmallBytes = 4e6, kMiddleBytes = 2.5e8, kLargeBytes = 4e9;
constexpr std::size_t kDeviceCopies = 52, kHostCopies = 46;
constexpr std::int64_t kCopyStep = 512;

bool is_loss(const std::string& kernel) { return kernel.starts_with("cross_entropy"); }

CalibrationCall elementwise_call_of(const std::string& kernel, double bytes, std::int64_t width) {
  CalibrationCall call;
  call.call_class = CallClass::kElementwise;
  call.op = "elementwise";
  call.kernel = kernel;
  call.n = width;
  const auto per_token = static_cast<double>(elementwise_bytes(kernel, 1024, width)) / 1024;
  call.m = std::max<std::int64_t>(8, std::llround(bytes / per_token / 8) * 8);
  call.bytes = elementwise_bytes(kernel, call.m, width);
  call.name = fmt::format("{}-{}/{}", kernel, width, call.m);
  return call;
}

CalibrationCall copy_of(const std::string& pass, double place, double least, double middle, double most) {
  CalibrationCall call;
  call.call_class = CallClass::kCopy;
  call.op = "copy";
  call.pass = pass;
  // One in five below `middle`, where a call is latency more than bytes.
  call.bytes = place < 0.2 ? log_between(place / 0.2, least, middle, kCopyStep)
                           : log_between((place - 0.2) / 0.8, middle, most, kCopyStep);
  // Copies within a factor of two are one family.
  call.name = fmt::format("{}-{}/{}", pass, std::int64_t{1} << static_cast<int>(std::log2(call.bytes)), call.bytes);
  return call;
}

}  // namespace

const std::vector<std::string>& elementwise_kernels() {
  static const std::vector<std::string> kernels = {"rms_norm",
                                                   "rms_norm_backward",
                                                   "swiglu",
                                                   "swiglu_backward",
                                                   "rope",
                                                   "merge_attention",
                                                   "pack_rows",
                                                   "unpack_rows",
                                                   "cast_to_bf16",
                                                   "cast_to_fp32",
                                                   "adamw",
                                                   "cross_entropy",
                                                   "cross_entropy_with_gradient"};
  return kernels;
}

// As the headers of kernels/elementwise count them.
std::int64_t elementwise_bytes(const std::string& kernel, std::int64_t tokens, std::int64_t width) {
  const std::int64_t count = tokens * width;
  if (kernel == "rms_norm") return count * 4 + width * 2 + tokens * 4;
  if (kernel == "rms_norm_backward") return count * 6 + width * 6 + tokens * 4;
  if (kernel == "swiglu") return count * 6;
  if (kernel == "swiglu_backward") return count * 10;
  if (kernel == "rope") return count * 4 + tokens * 4;
  if (kernel == "merge_attention") return count * 10 + tokens * (width / kHeadDim) * 12;
  if (kernel == "pack_rows" || kernel == "unpack_rows") return count * 4 + tokens * 4;
  if (kernel == "cast_to_bf16" || kernel == "cast_to_fp32") return count * 6;
  if (kernel == "adamw") return count * 30;
  if (kernel == "cross_entropy") return count * 2 + tokens * 8;
  if (kernel == "cross_entropy_with_gradient") return count * 4 + tokens * 8;
  throw std::invalid_argument("elementwise_bytes: no kernel " + kernel);
}

std::vector<CalibrationCall> elementwise_calls() {
  std::vector<CalibrationCall> calls;
  const std::vector<std::string>& kernels = elementwise_kernels();
  for (std::size_t i = 0; i < kElementwiseCalls; ++i) {
    // Kernels in turn, so that each has as many rows.
    const std::string& kernel = kernels[i % kernels.size()];
    const std::vector<double> point = even_point(i / kernels.size() + 11 * (i % kernels.size()), 2);
    const std::int64_t width = is_loss(kernel) ? kVocabularies.at(item_at(point[1], kVocabularies.size()))
                                               : kWidths.at(item_at(point[1], kWidths.size()));
    const double bytes = point[0] < 0.15
                             ? kSmallBytes * std::pow(kMiddleBytes / kSmallBytes, point[0] / 0.15)
                             : kMiddleBytes * std::pow(kLargeBytes / kMiddleBytes, (point[0] - 0.15) / 0.85);
    calls.push_back(elementwise_call_of(kernel, bytes, width));
  }
  return calls;
}

std::vector<CalibrationCall> copy_calls() {
  std::vector<CalibrationCall> calls;
  const std::vector<std::size_t> lengths = {kDeviceCopies, kHostCopies, kHostCopies};
  std::array<std::size_t, 3> taken = {};
  for (const std::size_t list : even_merge(lengths)) {
    const double place = even_point(taken.at(list)++, 1)[0];
    if (list == 0) {
      calls.push_back(copy_of("d2d", place, 64e3, 1.1e8, 4e9));
    } else {
      calls.push_back(copy_of(list == 1 ? "h2d" : "d2h", place, 64e3, 3e6, 1e9));
    }
  }
  return calls;
}

std::vector<CalibrationCall> launch_calls() {
  CalibrationCall call;
  call.call_class = CallClass::kLaunch;
  call.op = "launch";
  call.name = "launch/empty";
  return {call};
}

}  // namespace longhaul
