#include "validate/device/cuda/cuda_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/attention/merge.h"
#include "kernels/common/check.h"
#include "kernels/elementwise/adamw.h"
#include "kernels/elementwise/cross_entropy.h"
#include "kernels/elementwise/rms_norm.h"
#include "kernels/elementwise/rope.h"
#include "kernels/elementwise/swiglu.h"
#include "kernels/gemm/gemm.h"
#include "validate/device/cuda/attention_runner.h"
#include "validate/device/cuda/row_kernels.h"
#include "validate/gpu/multiprocessor_clock.h"
#include "validate/gpu/power_state.h"
#ifdef LONGHAUL_CUDNN
#include <cudnn.h>
#endif

namespace longhaul {
namespace {

DeviceRows device_rows(const PlacedRows& rows) {
  return {rows.data, rows.index, rows.type == ElementType::kBf16, rows.rows, rows.columns, rows.stride};
}

struct StreamOwner {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
struct EventOwner {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
struct MemoryOwner {
  void operator()(std::byte* memory) const { cudaFree(memory); }
};
struct GateOwner {
  void operator()(int* gate) const { cudaFreeHost(gate); }
};

// What a stream's calls need besides the stream.
struct StreamTools {
  std::unique_ptr<std::remove_pointer_t<cudaStream_t>, StreamOwner> stream;
  std::unique_ptr<Gemm> gemm;
  std::unique_ptr<AttentionRunner> attention;
};

// "580.159.04" of the kernel module; empty where the driver does not say.
std::string driver_release() {
  std::ifstream in("/proc/driver/nvidia/version");
  std::string word, first_line;
  std::getline(in, first_line);
  std::istringstream words(first_line);
  while (words >> word) {
    if (word.find_first_not_of("0123456789.") == std::string::npos) return word;
  }
  return "";
}

// Every kind of call on one stream; the wrappers of kernels/ check sizes and alignment.
class CudaCalls {
 public:
  CudaCalls(const DeviceArena& memory, StreamId scratch_stream, StreamTools& tools, bool may_use_cudnn)
      : memory_(memory),
        scratch_(scratch_stream),
        tools_(tools),
        stream_(tools.stream.get()),
        may_use_cudnn_(may_use_cudnn) {}

  void operator()(const CopyRowsCall& call) const {
    copy_rows(rows(call.from), rows(call.to), call.accumulate, stream_);
  }
  void operator()(const FillRowsCall& call) const { fill_rows(rows(call.to), call.value, stream_); }
  void operator()(const SumRowsCall& call) const {
    std::vector<DeviceRows> from;
    for (const Rows& each : call.from) from.push_back(rows(each));
    sum_rows(from, rows(call.to), call.accumulate, stream_);
  }
  void operator()(const GemmCall& call) const {
    if (tools_.gemm == nullptr) tools_.gemm = std::make_unique<Gemm>();
    tools_.gemm->run(call.problem, at<void>(call.a), at<void>(call.b), at<void>(call.c), stream_);
  }
  void operator()(const RmsNormCall& call) const {
    rms_norm(norm_shape(call.tokens, call.width), at<Bf16>(call.x), at<Bf16>(call.w), at<Bf16>(call.y),
             at<float>(call.r), stream_);
  }
  void operator()(const RmsScaleCall& call) const {
    rms_scale(at<Bf16>(call.x), at<float>(call.r), call.tokens, call.width, static_cast<float>(kNormEpsilon), stream_);
  }
  void operator()(const RmsNormBackwardCall& call) const {
    const RmsNormShape shape = norm_shape(call.tokens, call.width);
    if (rms_norm_scratch(shape) > static_cast<std::size_t>(rms_backward_scratch(call.width))) {
      throw std::invalid_argument("rms_norm_backward needs more scratch than rms_backward_scratch says");
    }
    rms_norm_backward(shape, at<Bf16>(call.x), at<Bf16>(call.w), at<float>(call.r), at<Bf16>(call.dy),
                      at<Bf16>(call.dx), at<float>(call.dw), at<float>(call.scratch), stream_);
  }
  void operator()(const RopeCall& call) const {
    const RopeShape shape{call.tokens, call.stride, static_cast<int>(call.heads), static_cast<int>(call.head_dim)};
    rope(shape, rope_frequencies(shape.head_dim, kRopeBase), constants(call.positions), call.inverse, at<Bf16>(call.x),
         stream_);
  }
  void operator()(const SwigluCall& call) const {
    const Bf16* gate = at<Bf16>(call.gate_up);
    swiglu({call.tokens, call.width, 2 * call.width}, gate, gate + call.width, at<Bf16>(call.y), stream_);
  }
  void operator()(const SwigluBackwardCall& call) const {
    const Bf16* gate = at<Bf16>(call.gate_up);
    Bf16* d_gate = at<Bf16>(call.d_gate_up);
    swiglu_backward({call.tokens, call.width, 2 * call.width}, gate, gate + call.width, at<Bf16>(call.dy), d_gate,
                    d_gate + call.width, stream_);
  }
  void operator()(const CrossEntropyCall& call) const {
    cross_entropy_with_gradient({call.tokens, call.vocabulary, call.stride}, at<Bf16>(call.logits),
                                constants(call.targets), call.scale, at<float>(call.loss), stream_);
  }
  void operator()(const EmbeddingBackwardCall& call) const {
    embedding_gradient({call.count, call.width, at<Bf16>(call.rows), at<Bf16>(call.table), constants(call.ids),
                        constants(call.first), constants(call.listed), call.accumulate},
                       stream_);
  }
  void operator()(const AttentionForwardCall& call) const { attention().forward(call, memory_, scratch_, stream_); }
  void operator()(const AttentionBackwardCall& call) const { attention().backward(call, memory_, scratch_, stream_); }
  void operator()(const MergeCall& call) const {
    const MergeShape shape{call.rows, static_cast<std::int32_t>(call.heads), static_cast<std::int32_t>(call.head_dim)};
    merge_partials(shape, at<Bf16>(call.part_o), at<float>(call.part_lse),
                   call.index == kNoIndex ? nullptr : constants(call.index), at<Bf16>(call.o), at<float>(call.lse),
                   stream_);
  }
  void operator()(const AdamwCall& call) const {
    const AdamwSettings settings{kLearningRate, kBeta1, kBeta2, kAdamEpsilon, kWeightDecay, 1};
    adamw(settings, call.count, at<float>(call.gradient), {at<float>(call.w), at<float>(call.m), at<float>(call.v)},
          at<Bf16>(call.weights), stream_);
  }

 private:
  template <class T>
  T* at(const Address& address) const {
    return reinterpret_cast<T*>(memory_.at(address, scratch_));
  }
  const std::int32_t* constants(std::int64_t offset) const {
    return reinterpret_cast<const std::int32_t*>(memory_.constants + offset);
  }
  DeviceRows rows(const Rows& of) const { return device_rows(placed(of, memory_, scratch_)); }
  static RmsNormShape norm_shape(std::int64_t tokens, std::int64_t width) {
    return {tokens, width, static_cast<float>(kNormEpsilon)};
  }
  AttentionRunner& attention() const {
    if (tools_.attention == nullptr) tools_.attention = std::make_unique<AttentionRunner>(may_use_cudnn_);
    return *tools_.attention;
  }

  const DeviceArena& memory_;
  StreamId scratch_;
  StreamTools& tools_;
  cudaStream_t stream_;
  bool may_use_cudnn_;
};

}  // namespace

struct CudaDevice::State {
  std::vector<std::unique_ptr<std::byte, MemoryOwner>> blocks;
  std::vector<StreamTools> streams;
  std::vector<std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, EventOwner>> events;
  std::unique_ptr<int, GateOwner> gate;
  std::unique_ptr<MultiprocessorClock> clock;
  std::int64_t free_at_start = 0;
  std::int64_t least_free = 0;
};

int cuda_device_count(std::string& why) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    why = fmt::format("{}: {}", cudaGetErrorName(status), cudaGetErrorString(status));
    cudaGetLastError();
    return 0;
  }
  if (count == 0) why = "cudaGetDeviceCount is 0";
  return count;
}

CudaDevice::CudaDevice(int index, AttentionChoice attention) : index_(index), attention_(attention) {
  std::string why;
  const int count = cuda_device_count(why);
  if (index >= count) {
    throw DeviceFault(FaultKind::kDeviceLost, {}, fmt::format("no GPU {}: {} are visible {}", index, count, why));
  }
  use();
  state_ = std::make_unique<State>();
  int* gate = nullptr;
  LH_CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&gate), sizeof(int)));
  state_->gate.reset(gate);
  *state_->gate = 1;
  state_->clock = std::make_unique<MultiprocessorClock>(nullptr);
  LH_CUDA_CHECK(cudaDeviceSynchronize());
  state_->free_at_start = state_->least_free = free_bytes();
}

CudaDevice::~CudaDevice() {
  if (state_ == nullptr) return;
  cudaSetDevice(index_);
  release_start();
}

void CudaDevice::use() const { LH_CUDA_CHECK(cudaSetDevice(index_)); }

void CudaDevice::plant_delay(const std::string& kernel, std::chrono::nanoseconds delay) {
  delayed_kernel_ = kernel;
  delay_ = delay;
}

cudaStream_t CudaDevice::cuda_stream(StreamHandle stream) const {
  return state_->streams[static_cast<std::size_t>(stream)].stream.get();
}

HardwareInfo CudaDevice::hardware() const {
  use();
  cudaDeviceProp properties{};
  LH_CUDA_CHECK(cudaGetDeviceProperties(&properties, index_));
  int driver = 0, runtime = 0, sm_khz = 0, memory_khz = 0;
  LH_CUDA_CHECK(cudaDriverGetVersion(&driver));
  LH_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  LH_CUDA_CHECK(cudaDeviceGetAttribute(&sm_khz, cudaDevAttrClockRate, index_));
  LH_CUDA_CHECK(cudaDeviceGetAttribute(&memory_khz, cudaDevAttrMemoryClockRate, index_));
  const auto version = [](int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); };
  HardwareInfo info;
  info.device = properties.name;
  info.device_memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  info.multiprocessors = properties.multiProcessorCount;
  info.compute_capability = fmt::format("{}.{}", properties.major, properties.minor);
  info.driver = fmt::format("{} (CUDA {})", driver_release(), version(driver));
  info.cuda = version(runtime);
  const std::size_t cublas = cublasLtGetVersion();
  info.cublas = fmt::format("{}.{}.{}", cublas / 10000, cublas % 10000 / 100, cublas % 100);
#ifdef LONGHAUL_CUDNN
  const std::size_t cudnn = cudnnGetVersion();
  info.cudnn = fmt::format("{}.{}.{}", cudnn / 10000, cudnn % 10000 / 100, cudnn % 100);
#endif
  info.sm_clock_mhz = sm_khz / 1000;
  info.memory_clock_mhz = memory_khz / 1000;
  return info;
}

std::int64_t CudaDevice::free_bytes() const {
  use();
  std::size_t free = 0, total = 0;
  LH_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return static_cast<std::int64_t>(free);
}

DeviceReadings CudaDevice::readings() const {
  use();
  const PowerState state = power_state(index_);
  return {state.sm_clock_mhz, state.temperature_c, state.power_w};
}

std::int64_t CudaDevice::workspace_bytes(const DeviceCall& call) const {
  const bool best = attention_ == AttentionChoice::kBest;
  if (std::holds_alternative<GemmCall>(call)) return static_cast<std::int64_t>(Gemm::kDefaultWorkspaceBytes);
  if (const auto* forward = std::get_if<AttentionForwardCall>(&call)) return attention_workspace(*forward, best);
  if (const auto* backward = std::get_if<AttentionBackwardCall>(&call)) return attention_workspace(*backward, best);
  return 0;
}

std::int64_t CudaDevice::peak_bytes() const { return state_->free_at_start - state_->least_free; }

std::byte* CudaDevice::allocate(std::int64_t bytes) {
  use();
  if (bytes == 0) return nullptr;
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, static_cast<std::size_t>(bytes));
  if (status != cudaSuccess) {
    cudaGetLastError();
    const std::string text = fmt::format("{} bytes: {}: {}; {} bytes are free", bytes, cudaGetErrorName(status),
                                         cudaGetErrorString(status), free_bytes());
    throw DeviceFault(fault_kind_of(text), {}, text);
  }
  state_->blocks.emplace_back(static_cast<std::byte*>(memory));
  state_->least_free = std::min(state_->least_free, free_bytes());
  return static_cast<std::byte*>(memory);
}

void CudaDevice::write(std::byte* to, std::span<const std::byte> from) {
  use();
  if (!from.empty()) LH_CUDA_CHECK(cudaMemcpy(to, from.data(), from.size(), cudaMemcpyHostToDevice));
}

void CudaDevice::read(std::span<std::byte> to, const std::byte* from) {
  use();
  if (!to.empty()) LH_CUDA_CHECK(cudaMemcpy(to.data(), from, to.size(), cudaMemcpyDeviceToHost));
}

void CudaDevice::fill_bytes(std::byte* to, std::int64_t bytes, std::uint8_t value) {
  use();
  if (bytes == 0) return;
  LH_CUDA_CHECK(cudaMemset(to, value, static_cast<std::size_t>(bytes)));
  LH_CUDA_CHECK(cudaDeviceSynchronize());
}

StreamHandle CudaDevice::make_stream() {
  use();
  cudaStream_t stream = nullptr;
  LH_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  state_->streams.emplace_back();
  state_->streams.back().stream.reset(stream);
  return static_cast<StreamHandle>(state_->streams.size()) - 1;
}

EventHandle CudaDevice::make_event(bool timed) {
  use();
  cudaEvent_t event = nullptr;
  LH_CUDA_CHECK(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming));
  state_->events.emplace_back(event);
  return static_cast<EventHandle>(state_->events.size()) - 1;
}

void CudaDevice::record(EventHandle event, StreamHandle stream) {
  use();
  LH_CUDA_CHECK(cudaEventRecord(state_->events[static_cast<std::size_t>(event)].get(), cuda_stream(stream)));
}

void CudaDevice::wait(StreamHandle stream, EventHandle event) {
  use();
  LH_CUDA_CHECK(cudaStreamWaitEvent(cuda_stream(stream), state_->events[static_cast<std::size_t>(event)].get(), 0));
}

void CudaDevice::launch(const DeviceCall& call, const DeviceArena& memory, StreamId scratch_stream,
                        StreamHandle stream) {
  use();
  StreamTools& tools = state_->streams[static_cast<std::size_t>(stream)];
  std::visit(CudaCalls(memory, scratch_stream, tools, attention_ == AttentionChoice::kBest), call);
  if (!delayed_kernel_.empty() && delayed_kernel_ == kernel_name(call)) delay(delay_, stream);
}

void CudaDevice::delay(std::chrono::nanoseconds length, StreamHandle stream) {
  use();
  longhaul::delay(length.count(), cuda_stream(stream));
}

void CudaDevice::copy(const PlacedRows& from, const PlacedRows& to, bool accumulate, StreamHandle stream) {
  use();
  copy_rows(device_rows(from), device_rows(to), accumulate, cuda_stream(stream));
}

void CudaDevice::sum(const std::vector<PlacedRows>& from, const std::vector<PlacedRows>& to, StreamHandle stream) {
  use();
  std::vector<DeviceRows> sources;
  for (const PlacedRows& rows : from) sources.push_back(device_rows(rows));
  sum_rows(sources, device_rows(to.front()), false, cuda_stream(stream));
  for (std::size_t i = 1; i < to.size(); ++i) {
    copy_rows(device_rows(to.front()), device_rows(to[i]), false, cuda_stream(stream));
  }
}

void CudaDevice::noise(const PlacedRows& to, std::uint32_t seed, StreamHandle stream) {
  use();
  noise_rows(device_rows(to), seed, cuda_stream(stream));
}

void CudaDevice::read_async(std::span<std::byte> to, const std::byte* from, StreamHandle stream) {
  use();
  if (to.empty()) return;
  LH_CUDA_CHECK(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, cuda_stream(stream)));
}

// Pageable memory is staged before the call returns.
void CudaDevice::write_async(std::byte* to, std::vector<std::byte> from, StreamHandle stream) {
  use();
  if (from.empty()) return;
  LH_CUDA_CHECK(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, cuda_stream(stream)));
}

std::string CudaDevice::kernel_label(const DeviceCall& call) const {
  const bool best = attention_ == AttentionChoice::kBest;
  if (std::holds_alternative<GemmCall>(call)) return "cublaslt";
  if (const auto* forward = std::get_if<AttentionForwardCall>(&call)) {
    return best && runs_on_cudnn(*forward) ? "cudnn" : "piece_attention";
  }
  if (const auto* backward = std::get_if<AttentionBackwardCall>(&call)) {
    return best && runs_on_cudnn(*backward) ? "cudnn" : "piece_attention";
  }
  return kernel_name(call);
}

void CudaDevice::synchronize(std::chrono::milliseconds timeout) {
  use();
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (std::size_t s = 0; s < state_->streams.size(); ++s) {
    const cudaStream_t stream = state_->streams[s].stream.get();
    for (;;) {
      const cudaError_t status = cudaStreamQuery(stream);
      if (status == cudaSuccess) break;
      if (status != cudaErrorNotReady) LH_CUDA_CHECK(status);
      if (std::chrono::steady_clock::now() > deadline) {
        throw DeviceFault(FaultKind::kHang, {}, fmt::format("stream {} is not done after {} ms", s, timeout.count()));
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  state_->least_free = std::min(state_->least_free, free_bytes());
}

bool CudaDevice::reached(EventHandle event) {
  use();
  const cudaError_t status = cudaEventQuery(state_->events[static_cast<std::size_t>(event)].get());
  if (status == cudaErrorNotReady) return false;
  LH_CUDA_CHECK(status);
  return true;
}

std::int64_t CudaDevice::picoseconds_between(EventHandle from, EventHandle to) {
  use();
  float milliseconds = 0;
  LH_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, state_->events[static_cast<std::size_t>(from)].get(),
                                     state_->events[static_cast<std::size_t>(to)].get()));
  return std::llround(static_cast<double>(milliseconds) * 1e9);
}

void CudaDevice::hold_start(StreamHandle stream) {
  use();
  *state_->gate = 0;
  hold_at_gate(state_->gate.get(), cuda_stream(stream));
}

void CudaDevice::release_start() {
  if (state_ == nullptr) return;
  *static_cast<volatile int*>(state_->gate.get()) = 1;
}

void CudaDevice::begin_clock(StreamHandle stream) {
  use();
  state_->clock->begin(cuda_stream(stream));
}

void CudaDevice::end_clock(StreamHandle stream) {
  use();
  state_->clock->end(cuda_stream(stream));
}

std::int32_t CudaDevice::clock_mhz() {
  use();
  return static_cast<std::int32_t>(std::lround(state_->clock->megahertz(nullptr)));
}

void CudaDevice::abandon() {
  release_start();
  (void)state_.release();  // its destructors would wait for work that never ends
}

}  // namespace longhaul
