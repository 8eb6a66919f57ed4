// How long one kernel takes alone on one device: the only header of this room that strategies may include.
//
// Models: a launch is a fixed time plus work over rate, quantised in waves of tiles over the multiprocessors, with
// memory traffic charged beside it. Work comes from shapes; the few rates come from a calibration file that the tool
// `longhaul-fit` wrote from measured tables (validate/data). Evaluation uses + - * / sqrt and tables only.
//
// Units: seconds (double; the caller rounds once to Time). An estimate is what a kernel adds to a busy stream: launch
// and event latency, which a call timed alone shows, are left out (timed_alone adds them). It carries the ends of its
// 90 % interval, taken from the leave-one-out errors of the calibration, and says on what it stands (Basis).
//
// Invariants: 0 < low <= seconds <= high. A KernelModel is immutable; all members are safe to call from any thread.
// Ignored: clocks and power state, the state of the L2 before the call, other kernels (sim/cost/overlap.h has those).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sim/cluster/device.h"
#include "sim/core/error.h"
#include "sim/core/units.h"
#include "sim/cost/attention_work.h"
#include "sim/cost/overlap.h"

namespace longhaul {

struct AttentionLibrary;  // sim/cost/attention_library.h
struct Calibration;       // sim/cost/calibration.h
struct EagerKernels;      // sim/cost/eager_kernels.h
struct KernelCalibration;
struct KernelCall;  // sim/cost/kernel_features.h
enum class TermKind;

enum class Basis {
  kCalibrated,    // these very sizes were measured on this device and went into the fit
  kInterpolated,  // inside the range of measured sizes
  kExtrapolated,  // outside it: the interval is widened
  kDatasheet,     // the device was not measured: rates scaled from the nearest measured one
};
const char* basis_name(Basis basis);  // "calibrated", "interpolated", "extrapolated", "datasheet" (cli.md, `cost`)

struct Estimate {
  double seconds = 0;
  double low = 0;
  double high = 0;
  Basis basis = Basis::kDatasheet;
  double hidden = 0;  // launch and event latency that a call timed alone shows beside `seconds`
};

enum class GemmPass { kForward, kBackwardInput, kBackwardWeight };
enum class CopyKind { kDeviceToDevice, kHostToDevice, kDeviceToHost };

// Kinds of calls that carry residuals of their own. Dense: one square or unmasked piece; ragged: any other varlen call.
enum class KernelKind {
  kGemm,
  kAttentionForwardDense,
  kAttentionBackwardDense,
  kAttentionForwardRagged,
  kAttentionBackwardRagged,
  kElementwise,
  kCopyDeviceToDevice,
  kCopyHostToDevice,
  kCopyDeviceToHost,
};
inline constexpr int kKernelKindCount = 9;

class KernelModel {
 public:
  // `calibration` was measured on `measured`; if `device` is another one, estimates are scaled and say kDatasheet.
  KernelModel(DeviceSpec device, std::shared_ptr<const Calibration> calibration);

  // C[m x n] (+)= A[m x k] B[k x n] in bf16 with fp32 accumulation. m x n is this GEMM's own output, k what it
  // reduces: for backward-weight k is the number of tokens. All >= 1.
  Estimate gemm(GemmPass pass, std::int64_t m, std::int64_t n, std::int64_t k) const;

  // One launch over `pieces` (at least one), whose keys lie apart. q_heads is a multiple of kv_heads. The call is what
  // cuDNN's wrapper (kernels/cudnn) would make of them: a dense batch of equal pieces, a ragged call under the top-left
  // mask (all square) or bottom-right; lists of several masks and block rules, which no one call of cuDNN can do, run
  // as our own kernels over pieces where these were measured.
  Estimate attention_forward(std::span<const AttentionPieceSize> pieces, std::int64_t q_heads, std::int64_t kv_heads,
                             std::int64_t head_dim) const;
  Estimate attention_backward(std::span<const AttentionPieceSize> pieces, std::int64_t q_heads, std::int64_t kv_heads,
                              std::int64_t head_dim) const;
  // The same from sums that the caller has accumulated.
  Estimate attention_forward(const AttentionWork& work, std::int64_t q_heads, std::int64_t kv_heads,
                             std::int64_t head_dim) const;
  Estimate attention_backward(const AttentionWork& work, std::int64_t q_heads, std::int64_t kv_heads,
                              std::int64_t head_dim) const;

  // A memory-bound kernel. >= 0 bytes.
  Estimate elementwise(Bytes read_and_written) const;
  // Of a function that the calibration may have measured ("rms_norm", "swiglu_backward", "merge_attention", "adamw",
  // ...) over rows x columns (0 x 0: flat); any other is one of all of them.
  Estimate elementwise(Bytes read_and_written, std::string_view function, std::int64_t rows,
                       std::int64_t columns) const;
  // `payload` bytes to copy; a copy within the device moves twice that. >= 0 bytes.
  Estimate copy(CopyKind kind, Bytes payload) const;

  // A call of a class that the calibration has (sim/cost/kernel_features.h); nothing of one that it has not.
  std::optional<Estimate> of_class(std::string_view kernel_class, const KernelCall& call) const;

  // A copy by an eager framework's own kernel (sim/cost/eager_kernels.h), `wait` before it included, and the host's
  // time to issue it. Nothing for a kind that was not measured, or without with_eager_kernels.
  std::optional<Estimate> eager(std::string_view kind, Bytes read_and_written) const;
  std::optional<double> eager_issue_seconds(std::string_view kind) const;
  double eager_wait_seconds(std::string_view kind) const;  // 0: the host does not wait for the stream
  // How long the device waits for the host in a stall over so many pieces; 0 for a kind that was not measured.
  double stall_seconds(std::string_view kind, std::int64_t pieces) const;

  // Host time that one kernel launch costs: the floor of an op where the CPU is the bottleneck.
  double launch_seconds() const;
  // How kernels, copies and transfers of this device slow each other down.
  OverlapModel overlap() const;
  // The same model, in which the added times of overlap() are multiplied by `scale` >= 0; 0 switches slow-down off.
  KernelModel with_overlap_scale(double scale) const;

  // The same model with attention by another library than the calibration's; the device must be one that it runs on.
  // Nothing: the calibration's own again.
  KernelModel with_attention_library(std::shared_ptr<const AttentionLibrary> library) const;

  // The same model with the kernels of an eager framework for ops that ask for them.
  KernelModel with_eager_kernels(std::shared_ptr<const EagerKernels> eager) const;

  const DeviceSpec& device() const { return device_; }
  bool has_attention_library() const { return attention_library_ != nullptr; }
  // Whether a call's first kernel is the one that takes its time. Not of the calibration's own calls: lists of pieces
  // are copied and described before.
  bool attention_starts_with_main_kernel(bool forward) const;
  bool measured() const { return measured_; }   // false: every basis is kDatasheet
  const std::string& calibration_name() const;  // "h200"
  const std::string& calibration_date() const;  // "2026-11-29", the day of measurement
  // One line for reports: calibration, date, and what was scaled if the device was not measured.
  std::string description() const;
  // Relative errors (measured / predicted - 1) that bound 90 % of the large calls of a kind: the widest band of its
  // classes, widened as an estimate is where the device was not measured (at least +-25 %). Sizes outside the measured
  // ones are not known here and widen nothing.
  double residual_low(KernelKind kernel) const;
  double residual_high(KernelKind kernel) const;
  // The same for what overlap adds to kernel times; never below -1.
  double overlap_residual_low() const;
  double overlap_residual_high() const;
  // What a call timed alone by events shows: `queued` plus its hidden part, as the table that its class was fitted to
  // has it (some keep launch and event latency out, and hide nothing). Kernels queued back to back hide that part; the
  // `cost` command adds it.
  static Estimate timed_alone(const Estimate& queued);

 private:
  Estimate estimate(const KernelCalibration& kernel, std::string_view kernel_class, const KernelCall& call) const;
  Estimate attention(bool forward, const AttentionWork& work, std::int64_t q_heads, std::int64_t kv_heads,
                     std::int64_t head_dim) const;
  double residual(KernelKind kernel, bool low) const;
  Estimate library_estimate(bool forward, const AttentionWork& work, std::int64_t q_heads, std::int64_t kv_heads,
                            std::int64_t head_dim) const;
  // Of the attention library, widened where the device's generation was not measured.
  double library_residual(KernelKind kernel, bool low) const;
  double scale(TermKind kind) const;

  DeviceSpec device_;
  std::shared_ptr<const Calibration> calibration_;
  std::shared_ptr<const AttentionLibrary> attention_library_;  // nothing: the calibration's
  std::shared_ptr<const EagerKernels> eager_;                  // nothing: copies as any other
  bool measured_;
  double overlap_scale_ = 1;
};

// The model of `device` from the calibrations in `data_directory`/topologies/devices/calibration: that of the device
// itself, or that of the nearest measured one (least ratio of peak and bandwidth), scaled by peak, bandwidth and
// multiprocessors. Errors: there is no calibration, or a file is not one (all faults, with file and JSON pointer).
Expected<KernelModel> load_kernel_model(const DeviceSpec& device, const std::string& data_directory);

}  // namespace longhaul
