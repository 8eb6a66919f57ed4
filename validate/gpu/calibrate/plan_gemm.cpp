#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "validate/gpu/calibrate/call_order.h"
#include "validate/gpu/calibrate/plan_parts.h"

namespace longhaul {
namespace {

// A linear layer: outputs x inputs.
struct Layer {
  std::int64_t outputs, inputs;
};

constexpr std::array kLayers = {
    Layer{4096, 4096},  Layer{6144, 4096},  Layer{14336, 4096}, Layer{28672, 4096},  Layer{4096, 14336},  // Llama 3 8B
    Layer{8192, 8192},  Layer{10240, 8192}, Layer{28672, 8192}, Layer{8192, 28672},                       // 70B
    Layer{1280, 8192},  Layer{8192, 1024},  Layer{3584, 8192},  Layer{8192, 3584},                        // 70B, tp 8
    Layer{3584, 3584},  Layer{4608, 3584},  Layer{18944, 3584}, Layer{3584, 18944},                       // Qwen 2.5 7B
    Layer{5120, 5120},  Layer{13824, 5120}, Layer{5120, 13824},                                           // Llama 2 13B
    Layer{2048, 2048},  Layer{3072, 2048},  Layer{8192, 2048},  Layer{2048, 8192},    // Llama 3.2 1B
    Layer{2560, 2560},  Layer{6912, 2560},  Layer{11008, 4096}, Layer{4096, 11008},   // GPT, Llama 2 7B
    Layer{12288, 6144}, Layer{6144, 12288}, Layer{32000, 4096}, Layer{128256, 4096},  // between; heads
};
constexpr std::array<const char*, 3> kPasses = {"fwd", "bwd-input", "bwd-weight"};
constexpr std::size_t kWhole = 48, kBetween = 120;
constexpr double kFewestTokens = 384, kMostTokens = 32768;
constexpr std::int64_t kMostProductFlop = 8'000'000'000'000;  // about 11 ms of an H200
constexpr std::int64_t kFewestFlop = 10'000'000'000;          // about 15 us

CalibrationCall call_of(const Layer& layer, const std::string& pass, std::int64_t tokens) {
  CalibrationCall call;
  call.call_class = CallClass::kGemm;
  call.op = "gemm";
  call.pass = pass;
  call.name = fmt::format("gemm-{}x{}/{}", layer.outputs, layer.inputs, tokens);
  call.m = tokens;
  call.n = layer.outputs;
  call.k = layer.inputs;
  if (pass == "bwd-input") std::swap(call.n, call.k);
  if (pass == "bwd-weight") {
    call.m = layer.outputs;
    call.n = layer.inputs;
    call.k = tokens;
  }
  return call;
}

std::int64_t fitting_tokens(const Layer& layer, std::int64_t tokens, std::int64_t step) {
  const std::int64_t per_token = 2 * layer.outputs * layer.inputs;
  const std::int64_t most = std::max(step, kMostProductFlop / per_token / step * step);
  const std::int64_t fewest = (kFewestFlop / per_token / step + 1) * step;
  return std::clamp(tokens, std::min(fewest, most), most);
}

}  // namespace

// Numbers of tokens that are powers of two (as trained), then others: multiples of 8, of 64 and of 256 in turn.
std::vector<CalibrationCall> gemm_calls() {
  std::vector<CalibrationCall> calls;
  std::set<std::vector<std::string>> known;
  for (std::size_t i = 0; calls.size() < kWhole + kBetween; ++i) {
    const std::vector<double> point = even_point(i, 3);
    const Layer& layer = kLayers.at(item_at(point[0], kLayers.size()));
    const std::string pass = kPasses.at(item_at(point[1], kPasses.size()));
    // Two of seven points have whole powers of two.
    const bool whole = i % 7 < 2;
    const std::int64_t step = std::array<std::int64_t, 3>{8, 64, 256}.at(i % 3);
    std::int64_t tokens = log_between(point[2], kFewestTokens, kMostTokens, whole ? 1 : step);
    if (whole) {
      std::int64_t power = 512;
      while (2 * power * power <= tokens * tokens) power *= 2;
      while (2 * layer.outputs * layer.inputs * power > kMostProductFlop) power /= 2;
      tokens = power;
    } else {
      tokens = fitting_tokens(layer, tokens, step);
    }
    CalibrationCall call = call_of(layer, pass, tokens);
    if (known.insert(call_fields(call)).second) calls.push_back(std::move(call));
  }
  return calls;
}

}  // namespace longhaul
