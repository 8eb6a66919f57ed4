#include "validate/gpu/measure_elementwise.h"

#include <fmt/format.h>

#include <cstdio>
#include <functional>
#include <utility>

#include "kernels/common/device_buffer.h"
#include "kernels/common/stream.h"
#include "kernels/elementwise/adamw.h"
#include "kernels/elementwise/cast.h"
#include "kernels/elementwise/cross_entropy.h"
#include "kernels/elementwise/merge.h"
#include "kernels/elementwise/rms_norm.h"
#include "kernels/elementwise/rope.h"
#include "kernels/elementwise/rows.h"
#include "kernels/elementwise/swiglu.h"
#include "validate/gpu/device_data.h"
#include "validate/gpu/loop_samples.h"
#include "validate/gpu/machine.h"

namespace longhaul {
namespace {

constexpr int kWarmUps = 3;
constexpr int kSamples = 20;
constexpr std::int64_t kFlushBytes = std::int64_t{180} << 20;
constexpr std::int64_t kHeadDim = 128;
constexpr std::int64_t kTokens[] = {1024, 4096, 16384, 65536};
constexpr std::int64_t kWidths[] = {2048, 4096, 8192, 14336};
constexpr std::int64_t kVocabularies[] = {32000, 128256};
constexpr std::int64_t kMostLogits = std::int64_t{1} << 31;
constexpr std::int64_t kMostTokens = 65536;
constexpr std::int64_t kMostElements = kMostTokens * 14336;

struct Case {
  std::string op;
  std::int64_t tokens = 0, width = 0, bytes = 0;
  std::function<void(cudaStream_t)> enqueue;

  std::vector<std::string> key() const { return {op, fmt::to_string(tokens), fmt::to_string(width)}; }
};

// Operands of the largest case, on random data; cases take what they need of them.
class Operands {
 public:
  Operands()
      : a_(kMostLogits),
        b_(kMostElements),
        c_(kMostElements),
        wide_{DeviceBuffer<float>(kMostElements), DeviceBuffer<float>(kMostElements),
              DeviceBuffer<float>(kMostElements), DeviceBuffer<float>(kMostElements)},
        index_(kMostTokens),
        targets_(kMostTokens) {
    for (DeviceBuffer<Bf16>* buffer : {&a_, &b_, &c_}) {
      fill_random(buffer->data(), static_cast<std::int64_t>(buffer->size()), 1, stream_.get());
    }
    for (DeviceBuffer<float>& buffer : wide_) fill_random(buffer.data(), kMostElements, 2, stream_.get());
    // A permutation: an odd factor modulo a power of two.
    std::vector<std::int32_t> index(index_.size());
    for (std::size_t i = 0; i < index.size(); ++i) index[i] = static_cast<std::int32_t>(i * 30011 % index.size());
    index_.upload(index, stream_.get());
    targets_.upload(std::vector<std::int32_t>(targets_.size(), 0), stream_.get());
    stream_.synchronize();
  }

  std::vector<Case> cases() {
    std::vector<Case> all;
    for (const std::int64_t tokens : kTokens) {
      for (const std::int64_t width : kWidths) {
        add_norms(all, tokens, width);
        add_products(all, tokens, width);
        add_heads(all, tokens, width);
        add_moves(all, tokens, width);
      }
      for (const std::int64_t vocabulary : kVocabularies) add_losses(all, tokens, vocabulary);
    }
    return all;
  }

 private:
  float* floats(int i) { return wide_[i].data(); }

  void add_norms(std::vector<Case>& all, std::int64_t tokens, std::int64_t width) {
    const RmsNormShape shape{.tokens = tokens, .width = width};
    all.push_back(
        {"rms_norm", tokens, width, tokens * width * 4 + width * 2 + tokens * 4,
         [=, this](cudaStream_t stream) { rms_norm(shape, a_.data(), c_.data(), b_.data(), floats(0), stream); }});
    all.push_back({"rms_norm_backward", tokens, width, tokens * width * 6 + width * 6 + tokens * 4,
                   [=, this](cudaStream_t stream) {
                     rms_norm_backward(shape, a_.data(), c_.data(), floats(0), c_.data(), b_.data(), floats(1),
                                       floats(2), stream);
                   }});
  }

  void add_products(std::vector<Case>& all, std::int64_t tokens, std::int64_t width) {
    const SwigluShape shape{.tokens = tokens, .width = width, .stride = width};
    all.push_back({"swiglu", tokens, width, tokens * width * 6,
                   [=, this](cudaStream_t stream) { swiglu(shape, a_.data(), b_.data(), c_.data(), stream); }});
    all.push_back({"swiglu_backward", tokens, width, tokens * width * 10, [=, this](cudaStream_t stream) {
                     swiglu_backward(shape, a_.data(), b_.data(), c_.data(), a_.data(), b_.data(), stream);
                   }});
  }

  void add_heads(std::vector<Case>& all, std::int64_t tokens, std::int64_t width) {
    const int heads = static_cast<int>(width / kHeadDim);
    const RopeShape shape{.tokens = tokens, .stride = width, .heads = heads, .head_dim = kHeadDim};
    all.push_back({"rope", tokens, width, tokens * width * 4 + tokens * 4, [=, this](cudaStream_t stream) {
                     rope(shape, frequencies_, index_.data(), false, a_.data(), stream);
                   }});
    const MergeShape merge{.tokens = tokens, .heads = heads, .head_dim = kHeadDim};
    all.push_back(
        {"merge_attention", tokens, width, tokens * width * 10 + tokens * heads * 12, [=, this](cudaStream_t stream) {
           merge_attention(merge, floats(0), floats(1), a_.data(), floats(2), stream);
         }});
  }

  void add_moves(std::vector<Case>& all, std::int64_t tokens, std::int64_t width) {
    const std::int64_t count = tokens * width;
    // Rows spread over the whole buffer, none twice.
    all.push_back({"pack_rows", tokens, width, count * 4 + tokens * 4, [=, this](cudaStream_t stream) {
                     pack_rows(a_.data(), index_.data(), b_.data(), tokens, width * 2, stream);
                   }});
    all.push_back({"unpack_rows", tokens, width, count * 4 + tokens * 4, [=, this](cudaStream_t stream) {
                     unpack_rows(a_.data(), index_.data(), b_.data(), tokens, width * 2, stream);
                   }});
    all.push_back({"cast_to_bf16", tokens, width, count * 6,
                   [=, this](cudaStream_t stream) { cast_to_bf16(floats(0), b_.data(), count, stream); }});
    all.push_back({"cast_to_fp32", tokens, width, count * 6,
                   [=, this](cudaStream_t stream) { cast_to_fp32(a_.data(), floats(3), count, stream); }});
    all.push_back({"adamw", tokens, width, count * 30, [=, this](cudaStream_t stream) {
                     adamw({}, count, floats(0), {floats(1), floats(2), floats(3)}, b_.data(), stream);
                   }});
  }

  void add_losses(std::vector<Case>& all, std::int64_t tokens, std::int64_t vocabulary) {
    if (tokens * vocabulary > kMostLogits) return;
    const CrossEntropyShape shape{.tokens = tokens, .vocabulary = vocabulary, .stride = vocabulary};
    const std::int64_t bytes = tokens * vocabulary * 2;
    all.push_back({"cross_entropy", tokens, vocabulary, bytes + tokens * 8, [=, this](cudaStream_t stream) {
                     cross_entropy(shape, a_.data(), targets_.data(), floats(0), stream);
                   }});
    all.push_back(
        {"cross_entropy_with_gradient", tokens, vocabulary, 2 * bytes + tokens * 8, [=, this](cudaStream_t stream) {
           cross_entropy_with_gradient(shape, a_.data(), targets_.data(), 1.0F, floats(0), stream);
         }});
  }

  Stream stream_;
  DeviceBuffer<Bf16> a_, b_, c_;
  DeviceBuffer<float> wide_[4];
  DeviceBuffer<std::int32_t> index_, targets_;
  std::vector<double> frequencies_ = rope_frequencies(kHeadDim, 500000);
};

class Sampler {
 public:
  Sampler() : flush_(kFlushBytes) {}

  SampleSummary milliseconds(const Case& measured) {
    for (int i = 0; i < kWarmUps; ++i) measured.enqueue(stream_.get());
    for (int i = 0; i < kSamples; ++i) {
      flush_.poison(stream_.get());
      starts_[i].record(stream_.get());
      measured.enqueue(stream_.get());
      ends_[i].record(stream_.get());
    }
    stream_.synchronize();
    std::vector<double> samples;
    for (int i = 0; i < kSamples; ++i) samples.push_back(ends_[i].milliseconds_since(starts_[i]));
    return summarize(std::move(samples));
  }

 private:
  Stream stream_;
  DeviceBuffer<std::byte> flush_;
  Event starts_[kSamples], ends_[kSamples];
};

}  // namespace

ResultFormat elementwise_format() {
  ResultFormat format;
  format.identity = {"source: longhaul-measure elementwise: the memory-bound kernels of kernels/elementwise"};
  for (std::string& line : machine_lines(1)) format.identity.push_back(std::move(line));
  format.identity.emplace_back(
      "method: one call between two events on a busy stream, L2 overwritten before each, random data, 20 samples after "
      "3 warm-ups; bytes: read plus written, each once");
  format.notes = {fmt::format("date: {}", today())};
  format.columns = {"op", "tokens", "width", "bytes", "ms_median", "ms_min", "ms_max", "reps"};
  format.key_columns = {"op", "tokens", "width"};
  return format;
}

void measure_elementwise(ResultFile& file) {
  LH_CUDA_CHECK(cudaSetDevice(0));
  Operands operands;
  Sampler sampler;
  for (const Case& measured : operands.cases()) {
    if (file.has(measured.key())) continue;
    const SampleSummary ms = sampler.milliseconds(measured);
    std::vector<std::string> row = measured.key();
    row.push_back(fmt::to_string(measured.bytes));
    for (const double value : {ms.median, ms.min, ms.max}) row.push_back(fmt::format("{:.6f}", value));
    row.push_back(fmt::to_string(kSamples));
    file.append(row);
    fmt::print(stderr, "{}: {:.4f} ms, {:.0f} GB/s\n", fmt::join(measured.key(), " "), ms.median,
               static_cast<double>(measured.bytes) / ms.median / 1e6);
  }
}

}  // namespace longhaul
