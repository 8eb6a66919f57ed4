#include "validate/gpu/cuda_bench.h"

#include <cublasLt.h>
#include <cudnn.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "kernels/attention/piece_attention.h"
#include "validate/gpu/attention_rows.h"
#include "validate/gpu/calibrate_version.h"
#include "validate/gpu/elementwise_calls.h"
#include "validate/gpu/machine.h"
#include "validate/gpu/power_state.h"

namespace longhaul {
namespace {

constexpr int kWarmUps = 2;
// Left to the context, the libraries' scratch (gradients a query head, fp32 sums) and NCCL.
constexpr std::size_t kReservedBytes = std::size_t{24} << 30;
// Scratch of small kernels and alignment beside what the plan counts.
constexpr std::size_t kSlackBytes = std::size_t{256} << 20;

std::size_t pool_bytes(std::int64_t wanted) {
  std::size_t free = 0, total = 0;
  LH_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  const std::size_t usable = free > 2 * kReservedBytes ? free - kReservedBytes : free / 2;
  return std::min(static_cast<std::size_t>(wanted) + kSlackBytes, usable);
}

int gpus_of(int asked) {
  const int visible = visible_gpus();
  if (asked > visible) throw LimitError(fmt::format("--gpus {}: CUDA sees {}: --gpus {}", asked, visible, visible));
  LH_CUDA_CHECK(cudaSetDevice(0));
  return asked == 0 ? visible : asked;
}

AttentionCall pieces_of(const CalibrationCall& call) {
  const Expected<AttentionCall> rows =
      attention_call({call.name, call.q_heads, call.kv_heads, call.head_dim, call.mask, call.pieces});
  if (!rows) throw UnsupportedCall(rows.error().front().to_string());
  return *rows;
}

// Operands of an attention call; o and lse are written by a forward call before a backward one is timed.
struct AttentionOperands {
  AttentionOperands(const CalibrationCall& call, const AttentionCall& rows, OperandPool& pool) {
    const std::int64_t q_size = rows.q_rows * call.q_heads * call.head_dim;
    const std::int64_t k_size = rows.k_rows * call.kv_heads * call.head_dim;
    for (Bf16** tensor : {&q, &o, &d_o, &d_q}) *tensor = pool.take<Bf16>(q_size);
    for (Bf16** tensor : {&k, &v, &d_k, &d_v}) *tensor = pool.take<Bf16>(k_size);
    lse = pool.take<float>(rows.q_rows * call.q_heads);
  }
  Bf16 *q = nullptr, *o = nullptr, *d_o = nullptr, *d_q = nullptr;
  Bf16 *k = nullptr, *v = nullptr, *d_k = nullptr, *d_v = nullptr;
  float* lse = nullptr;
};

}  // namespace

struct CudaBench::HostMemory {
  explicit HostMemory(std::int64_t bytes) {
    LH_CUDA_CHECK(cudaMallocHost(&data, static_cast<std::size_t>(bytes)));
    std::fill_n(static_cast<unsigned char*>(data), bytes, static_cast<unsigned char>(0x5A));  // pages are there
  }
  ~HostMemory() { cudaFreeHost(data); }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  void* data = nullptr;
};

CudaBench::CudaBench(const BenchOptions& options)
    : options_(options), gpus_(gpus_of(options.gpus)), pool_(pool_bytes(options.operand_bytes), timer_.stream()) {}

CudaBench::~CudaBench() = default;

std::string CudaBench::device_name() const { return "GPU 0 (" + gpu_name(0) + ")"; }

std::vector<std::string> CudaBench::identity() const {
  std::vector<std::string> lines = {fmt::format("source: longhaul calibrate {}", kCalibrateVersion)};
  for (std::string& line : machine_lines(1)) lines.push_back(std::move(line));
  lines.push_back(fmt::format("libraries: cuBLASLt {}, cuDNN {}", cublasLtGetVersion(), cudnnGetVersion()));
  return lines;
}

std::vector<std::string> CudaBench::notes() const {
  std::vector<std::string> lines = {fmt::format("date: {}", today()),
                                    fmt::format("default clock: {:.0f} MHz", default_clock_mhz())};
  for (std::string& line : power_lines(0)) lines.push_back(std::move(line));
  return lines;
}

double CudaBench::default_clock_mhz() const {
  int khz = 0;
  LH_CUDA_CHECK(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0));
  return khz / 1e3;
}

CudaBench::Enqueue CudaBench::gemm(const CalibrationCall& call) {
  const GemmProblem problem = call.pass == "fwd"         ? forward_gemm(call.m, call.n, call.k)
                              : call.pass == "bwd-input" ? backward_input_gemm(call.m, call.n, call.k)
                                                         : backward_weight_gemm(call.m, call.n, call.k);
  const Bf16* const a = pool_.take<Bf16>(call.m * call.k);
  const Bf16* const b = pool_.take<Bf16>(call.k * call.n);
  Bf16* const c = pool_.take<Bf16>(call.m * call.n);
  return [=, this] { gemm_.run(problem, a, b, c, timer_.stream()); };
}

CudaBench::Enqueue CudaBench::attention(const CalibrationCall& call, std::string& implementation) {
  const AttentionCall rows = pieces_of(call);
  const AttentionOperands t(call, rows, pool_);
  const auto batch = std::make_shared<CudnnBatch>(
      problem_of_pieces(rows.pieces, call.q_heads, call.kv_heads, call.head_dim), timer_.stream());
  implementation = batch->shape().ragged ? "cudnn-ragged" : "cudnn";
  const CudnnAttention::Inputs in{t.q, t.k, t.v};
  const auto forward = [=, this] { cudnn_.forward(*batch, in, t.o, t.lse, timer_.stream()); };
  if (call.pass == "fwd") return forward;
  forward();
  return [=, this] { cudnn_.backward(*batch, in, t.o, t.lse, t.d_o, {t.d_q, t.d_k, t.d_v}, timer_.stream()); };
}

CudaBench::Enqueue CudaBench::diffusion(const CalibrationCall& call, std::string& implementation) {
  const AttentionCall rows = pieces_of(call);
  const AttentionOperands t(call, rows, pool_);
  const AttentionShape shape{static_cast<int>(call.q_heads), static_cast<int>(call.kv_heads),
                             static_cast<int>(call.head_dim)};
  const auto own = std::make_shared<PieceAttention>(shape);
  implementation = own->kernel() == PieceAttention::Kernel::kHopper ? "longhaul-hopper" : "longhaul-portable";
  const cudaStream_t stream = timer_.stream();
  const auto plan = std::make_shared<PiecePlan>(own->plan(rows.pieces, rows.q_rows, rows.k_rows, stream));
  const auto forward = [=] { own->forward(*plan, t.q, t.k, t.v, t.o, t.lse, stream); };
  if (call.pass == "fwd") return forward;
  forward();
  const auto backward =
      std::make_shared<PieceBackwardPlan>(own->plan_backward(rows.pieces, rows.q_rows, rows.k_rows, stream));
  return [=] { own->backward(*backward, {t.q, t.k, t.v, t.o, t.lse, t.d_o}, {t.d_q, t.d_k, t.d_v}, stream); };
}

CudaBench::Enqueue CudaBench::copy(const CalibrationCall& call) {
  if (call.pass != "d2d" && !host_) host_ = std::make_unique<HostMemory>(options_.host_bytes);
  const auto bytes = static_cast<std::size_t>(call.bytes);
  void* from = pool_.take<Bf16>(call.bytes / 2);
  void* to = nullptr;
  cudaMemcpyKind kind = cudaMemcpyDeviceToDevice;
  if (call.pass == "d2d") {
    to = pool_.take<Bf16>(call.bytes / 2);
  } else {
    to = host_->data;
    kind = cudaMemcpyDeviceToHost;
    if (call.pass == "h2d") {
      std::swap(from, to);
      kind = cudaMemcpyHostToDevice;
    }
  }
  return [=, stream = timer_.stream()] { LH_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, kind, stream)); };
}

CudaBench::Enqueue CudaBench::make(const CalibrationCall& call, std::string& implementation) {
  switch (call.call_class) {
    case CallClass::kGemm:
      implementation = "cublaslt";
      return gemm(call);
    case CallClass::kAttention:
    case CallClass::kVarlen:
      return attention(call, implementation);
    case CallClass::kDiffusion:
      return diffusion(call, implementation);
    case CallClass::kElementwise:
      implementation = call.kernel;
      return elementwise_call(call, pool_, timer_.stream());
    case CallClass::kCopy:
      implementation = "cuda";
      return copy(call);
    case CallClass::kLaunch:
    case CallClass::kOverlap:
    case CallClass::kCollectives:
      break;
  }
  throw UnsupportedCall(fmt::format("class {} is no call", class_name(call.call_class)));
}

PreparedCall CudaBench::warmed_up(const CalibrationCall& call) {
  pool_.clear();
  if (call.call_class == CallClass::kLaunch) return {"cuda", std::make_unique<LaunchStopwatch>(timer_)};
  std::string implementation;
  Enqueue enqueue = make(call, implementation);
  // Plans, scratch and modules are made here.
  for (int i = 0; i < kWarmUps; ++i) enqueue();
  LH_CUDA_CHECK(cudaStreamSynchronize(timer_.stream()));
  return {implementation, std::make_unique<CudaStopwatch>(timer_, std::move(enqueue))};
}

PreparedCall CudaBench::prepare(const CalibrationCall& call) {
  try {
    return warmed_up(call);
  } catch (const std::invalid_argument& why) {
    throw UnsupportedCall(why.what());
  } catch (const CudaError& error) {
    // A refusal (no engine for a graph, no memory for its scratch) leaves the device well; a fault of a kernel is
    // reported again by every later call.
    const bool well = cudaStreamSynchronize(timer_.stream()) == cudaSuccess && cudaGetLastError() == cudaSuccess;
    if (well) throw UnsupportedCall(error.what());
    throw BenchFault(error.what());
  }
}

}  // namespace longhaul
