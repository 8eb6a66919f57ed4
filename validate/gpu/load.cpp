#include "validate/gpu/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "kernels/elementwise/cast.h"
#include "validate/gpu/device_data.h"

namespace longhaul {
namespace {

struct GemmShape {
  std::int64_t m, n, k;
};

// A layer's feed-forward at 16 K tokens, an attention projection at 8 K, and a product of few waves.
constexpr GemmShape kGemms[] = {{16384, 14336, 4096}, {8192, 4096, 4096}, {4096, 4096, 4096}};
// A block of NCCL moves about 20 GB/s between two H200: 20 to 40 ms.
constexpr std::int64_t kLongBytesPerBlock = std::int64_t{640} << 20;
constexpr std::int64_t kLongestBytes = std::int64_t{12} << 30;
constexpr std::int64_t kCastElements = std::int64_t{1} << 28;

struct FreePinned {
  void operator()(float* data) const { cudaFreeHost(data); }
};

std::unique_ptr<float, FreePinned> pinned(std::int64_t bytes) {
  void* data = nullptr;
  LH_CUDA_CHECK(cudaMallocHost(&data, static_cast<std::size_t>(bytes)));
  return std::unique_ptr<float, FreePinned>(static_cast<float*>(data));
}

template <class Area>
std::size_t most(Area area) {
  std::int64_t largest = 0;
  for (const GemmShape& shape : kGemms) largest = std::max(largest, area(shape));
  return static_cast<std::size_t>(largest);
}

// Makes copies from the current device to `peer` go over the link between them.
void enable_peer_access(int peer) {
  const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
    return;
  }
  LH_CUDA_CHECK(status);
}

}  // namespace

ComputeLoads::ComputeLoads()
    : a_(most([](const GemmShape& shape) { return shape.m * shape.k; })),
      b_(most([](const GemmShape& shape) { return shape.n * shape.k; })),
      c_(most([](const GemmShape& shape) { return shape.m * shape.n; })),
      wide_(static_cast<std::size_t>(kCastElements)),
      narrow_(static_cast<std::size_t>(kCastElements)) {
  Stream stream;
  fill_random(a_.data(), static_cast<std::int64_t>(a_.size()), 1, stream.get());
  fill_random(b_.data(), static_cast<std::int64_t>(b_.size()), 2, stream.get());
  fill_random(wide_.data(), kCastElements, 3, stream.get());
  stream.synchronize();
  for (const GemmShape& shape : kGemms) add_gemm(shape.m, shape.n, shape.k);
  add_cast();
}

void ComputeLoads::add_gemm(std::int64_t m, std::int64_t n, std::int64_t k) {
  Load load;
  load.name = fmt::format("gemm_{}x{}x{}", m, n, k);
  load.enqueue = [this, problem = forward_gemm(m, n, k)](cudaStream_t stream) {
    gemm_.run(problem, a_.data(), b_.data(), c_.data(), stream);
  };
  loads_.push_back(std::move(load));
}

void ComputeLoads::add_cast() {
  Load load;
  load.name = fmt::format("cast_fp32_bf16_{}", kCastElements);
  load.enqueue = [this](cudaStream_t stream) { cast_to_bf16(wide_.data(), narrow_.data(), kCastElements, stream); };
  loads_.push_back(std::move(load));
}

struct NeighbourLoads::State {
  explicit State(std::int64_t bytes)
      : send(static_cast<std::size_t>(bytes) / sizeof(float)),
        receive(static_cast<std::size_t>(bytes) / sizeof(float)) {}

  std::vector<std::unique_ptr<Communicator>> comms;
  DeviceBuffer<float> send, receive;
  std::unique_ptr<float, FreePinned> host;
  std::optional<DeviceBuffer<Bf16>> narrow;
  std::optional<DeviceBuffer<float>> remote;  // on the next device
  Stream check_stream;
};

NeighbourLoads::NeighbourLoads(std::int64_t buffer_bytes) : state_(std::make_shared<State>(buffer_bytes)) {}

NeighbourLoads::NeighbourLoads(std::int64_t buffer_bytes, int ranks, int rank, const std::vector<ncclUniqueId>& ids,
                               const std::vector<int>& max_ctas)
    : NeighbourLoads(buffer_bytes) {
  State& state = *state_;
  fill_pattern(state.send.data(), static_cast<std::int64_t>(state.send.size()), rank, state.check_stream.get());
  state.receive.poison(state.check_stream.get());
  state.check_stream.synchronize();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    state.comms.push_back(std::make_unique<Communicator>(ids[i], ranks, rank, max_ctas[i]));
  }
}

void NeighbourLoads::add_collectives(int ranks, int rank, std::size_t comm, int max_ctas, std::int64_t bytes,
                                     const std::vector<Stream::Priority>& priorities) {
  for (const MeasuredCollective collective : {MeasuredCollective::kAllReduce, MeasuredCollective::kAllGather,
                                              MeasuredCollective::kReduceScatter, MeasuredCollective::kAllToAll}) {
    const std::optional<CollectiveShape> shape = shape_of(collective, ranks, bytes);
    if (!shape) continue;
    for (const Stream::Priority priority : priorities) {
      Load load{std::string(collective_name(collective)), shape->size_bytes(), max_ctas, priority, {}, {}};
      load.enqueue = [state = state_.get(), comm, shape](cudaStream_t stream) {
        state->comms[comm]->enqueue(*shape, state->send.data(), state->receive.data(), stream);
      };
      load.count_wrong = [state = state_.get(), shape, ranks, rank] {
        const std::int64_t wrong =
            count_mismatches(state->receive.data(), received_runs(*shape, rank), ranks, state->check_stream.get());
        state->receive.poison(state->check_stream.get());
        state->check_stream.synchronize();
        return wrong;
      };
      loads_.push_back(std::move(load));
    }
  }
}

NeighbourLoads NeighbourLoads::among_gpus(int ranks, int rank, const std::vector<ncclUniqueId>& ids,
                                          const std::vector<int>& max_ctas, const std::vector<std::int64_t>& sizes) {
  NeighbourLoads result(*std::max_element(sizes.begin(), sizes.end()), ranks, rank, ids, max_ctas);
  for (std::size_t i = 0; i < max_ctas.size(); ++i) {
    for (const std::int64_t bytes : sizes) {
      result.add_collectives(ranks, rank, i, max_ctas[i], bytes, {Stream::Priority::kNormal, Stream::Priority::kHigh});
    }
  }
  result.add_peer_copies(ranks, rank, sizes);
  return result;
}

NeighbourLoads NeighbourLoads::long_calls(int ranks, int rank, const std::vector<ncclUniqueId>& ids,
                                          const std::vector<int>& max_ctas) {
  NeighbourLoads result(kLongestBytes, ranks, rank, ids, max_ctas);
  for (std::size_t i = 0; i < max_ctas.size(); ++i) {
    const std::int64_t bytes =
        max_ctas[i] == 0 ? kLongestBytes : std::min(kLongestBytes, max_ctas[i] * kLongBytesPerBlock);
    result.add_collectives(ranks, rank, i, max_ctas[i], bytes, {Stream::Priority::kNormal});
  }
  result.add_peer_copies(ranks, rank, {kLongestBytes});
  return result;
}

void NeighbourLoads::add_peer_copies(int ranks, int rank, const std::vector<std::int64_t>& sizes) {
  const int peer = (rank + 1) % ranks;
  enable_peer_access(peer);
  LH_CUDA_CHECK(cudaSetDevice(peer));
  state_->remote.emplace(state_->send.size());
  LH_CUDA_CHECK(cudaSetDevice(rank));
  for (const std::int64_t bytes : sizes) {
    const auto enqueue = [state = state_.get(), bytes, rank, peer](cudaStream_t stream) {
      LH_CUDA_CHECK(cudaMemcpyPeerAsync(state->remote->data(), peer, state->send.data(), rank,
                                        static_cast<std::size_t>(bytes), stream));
    };
    loads_.push_back({"peer_copy", bytes, 0, Stream::Priority::kNormal, enqueue, {}});
  }
}

NeighbourLoads NeighbourLoads::on_one_gpu(const std::vector<std::int64_t>& sizes) {
  const std::int64_t largest = *std::max_element(sizes.begin(), sizes.end());
  NeighbourLoads result(largest);
  State* state = result.state_.get();
  fill_random(state->send.data(), static_cast<std::int64_t>(state->send.size()), 4, state->check_stream.get());
  state->check_stream.synchronize();
  state->host = pinned(largest);
  state->narrow.emplace(state->send.size());
  const auto add = [&](const char* name, std::int64_t bytes, std::function<void(cudaStream_t)> enqueue) {
    result.loads_.push_back({name, bytes, 0, Stream::Priority::kNormal, std::move(enqueue), {}});
  };
  for (const std::int64_t bytes : sizes) {
    const auto copy = [bytes](void* to, const void* from, cudaMemcpyKind kind) {
      return [=](cudaStream_t stream) {
        LH_CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), kind, stream));
      };
    };
    add("d2d_copy", bytes, copy(state->receive.data(), state->send.data(), cudaMemcpyDeviceToDevice));
    add("h2d_copy", bytes, copy(state->receive.data(), state->host.get(), cudaMemcpyHostToDevice));
    add("d2h_copy", bytes, copy(state->host.get(), state->send.data(), cudaMemcpyDeviceToHost));
    add("cast_fp32_bf16", bytes, [state, bytes](cudaStream_t stream) {
      cast_to_bf16(state->send.data(), state->narrow->data(), bytes / static_cast<std::int64_t>(sizeof(float)), stream);
    });
  }
  return result;
}

}  // namespace longhaul
