// How long one kernel takes alone on one device: the only header of this room that strategies may include.
//
// Models: a launch is a fixed time plus work over rate, quantised in waves of tiles over the multiprocessors, with
// memory traffic charged beside it. Work comes from shapes; the few rates come from a calibration file that the tool
// `longhaul-fit` wrote from measured tables (validate/data). Evaluation uses + - * / sqrt and tables only.
//
// Units: seconds (double; the caller rounds once to Time). Every estimate carries the ends of its 90 % interval, taken
// from the leave-one-out errors of the calibration, and says on what it stands (Basis).
//
// Invariants: 0 < low <= seconds <= high. A KernelModel is immutable; all members are safe to call from any thread.
// Ignored: clocks and power state, the state of the L2 before the call, other kernels (see the slow-down factors).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sim/core/error.h"
#include "sim/core/units.h"
#include "sim/cost/attention_work.h"

namespace longhaul {

struct Calibration;  // sim/cost/calibration.h

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
};

enum class GemmPass { kForward, kBackwardInput, kBackwardWeight };
enum class CopyKind { kDeviceToDevice, kHostToDevice, kDeviceToHost };

// The classes that carry residuals of their own.
enum class KernelClass {
  kGemmForward,
  kGemmBackwardInput,
  kGemmBackwardWeight,
  kAttentionForward,         // one piece
  kAttentionBackward,        // one piece
  kAttentionForwardPacked,   // a varlen call of several pieces
  kAttentionBackwardPacked,  // a varlen call of several pieces
  kElementwise,
  kCopyDeviceToDevice,
  kCopyHostToDevice,
  kCopyDeviceToHost,
};
inline constexpr int kKernelClassCount = 11;
const char* kernel_class_name(KernelClass kernel);  // "gemm-forward", ... : the keys of the calibration file

// What the cost room needs to know about a device, from its topology file (sim/cluster/device.h).
struct KernelDevice {
  std::string name;                  // "h200"
  FlopsPerSecond bf16_dense;         // datasheet, dense
  BytesPerSecond memory_bandwidth;   // datasheet
  int multiprocessors = 0;
  BytesPerSecond host_link;          // one direction, one GPU
};

class KernelModel {
 public:
  // `calibration` was measured on `measured`; if `device` is another one, estimates are scaled and say kDatasheet.
  KernelModel(KernelDevice device, std::shared_ptr<const Calibration> calibration);

  // C[m x n] (+)= A[m x k] B[k x n] in bf16 with fp32 accumulation. m x n is this GEMM's own output, k what it
  // reduces: for backward-weight k is the number of tokens. All >= 1.
  Estimate gemm(GemmPass pass, std::int64_t m, std::int64_t n, std::int64_t k) const;

  // One varlen launch over `pieces` (at least one). q_heads is a multiple of kv_heads.
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
  // `payload` bytes to copy; a copy within the device moves twice that. >= 0 bytes.
  Estimate copy(CopyKind kind, Bytes payload) const;

  // Host time that one kernel launch costs: the floor of an op where the CPU is the bottleneck.
  double launch_seconds() const;
  // Factors >= 1: a compute kernel's time while a communication kernel runs beside it, and the reverse.
  double compute_slowdown_beside_communication() const;
  double communication_slowdown_beside_compute() const;
  // The same for a copy over the host link beside a compute kernel.
  double compute_slowdown_beside_host_copy() const;
  double host_copy_slowdown_beside_compute() const;

  const KernelDevice& device() const { return device_; }
  bool measured() const { return measured_; }            // false: every basis is kDatasheet
  const std::string& calibration_name() const;           // "h200"
  const std::string& calibration_date() const;           // "2026-11-29", the day of measurement
  // One line for reports: calibration, date, and what was scaled if the device was not measured.
  std::string description() const;
  // Relative leave-one-out residuals (measured / predicted - 1) of a class: 5 % and 95 % quantile.
  double residual_low(KernelClass kernel) const;
  double residual_high(KernelClass kernel) const;

 private:
  Estimate finish(KernelClass kernel, double seconds, bool inside, bool exact) const;

  KernelDevice device_;
  std::shared_ptr<const Calibration> calibration_;
  bool measured_;
  double compute_scale_;        // rate of one multiprocessor, relative to the measured device
  double bandwidth_scale_;      // memory bandwidth, the same
  double host_link_scale_;
};

// The model of `device` from the calibrations in `directory` (topologies/devices/calibration): that of the device
// itself, or the nearest measured one scaled by peak, bandwidth and multiprocessors. Errors: the directory holds no
// calibration, or a file of it is not one (all faults, with file and JSON pointer).
Expected<KernelModel> load_kernel_model(const KernelDevice& device, const std::string& directory);

}  // namespace longhaul
