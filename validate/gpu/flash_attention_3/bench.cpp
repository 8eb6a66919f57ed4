// Times FlashAttention-3's kernels, or checks them: README.md beside this file.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/common/check.h"
#include "validate/gpu/calibrate/measuring_loop.h"
#include "validate/gpu/call_timer.h"
#include "validate/gpu/flash_attention_3/cases.h"
#include "validate/gpu/flash_attention_3/flash_call.h"
#include "validate/gpu/flash_attention_3/reference.h"
#include "validate/gpu/power_state.h"

#ifndef FLASH_ATTENTION_REVISION
#error "build.sh defines FLASH_ATTENTION_REVISION and NVCC_RELEASE"
#endif

namespace longhaul {
namespace {

constexpr int kWrong = 1, kWrongInput = 2, kFault = 4;
constexpr int kWarmUps = 2;
constexpr double kLargestError = 2e-2;

constexpr const char* kUsage =
    "usage: flash-attention-3-bench CASES.csv OUT.csv [--names PREFIX] [--seconds S] [--rest S]\n"
    "       flash-attention-3-bench --check\n"
    "  --names    only cases whose name begins so\n"
    "  --seconds  most of a case's cold samples (0.4)\n"
    "  --rest     pause before a case (0.2)\n";

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Options {
  bool check = false;
  std::string cases, out, names;
  double seconds = 0.4, rest = 0.2;
};

double seconds_of(const std::string& text, const std::string& option) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0 && value <= 60)) {
    throw UsageError(option + " takes seconds from 0 to 60, not \"" + text + "\"");
  }
  return value;
}

Options read_options(const std::vector<std::string>& arguments) {
  Options options;
  std::vector<std::string> files;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i];
    if (name == "--check") {
      options.check = true;
    } else if (name == "--names" || name == "--seconds" || name == "--rest") {
      if (++i == arguments.size()) throw UsageError(name + " takes a value");
      if (name == "--names") options.names = arguments[i];
      if (name == "--seconds") options.seconds = seconds_of(arguments[i], name);
      if (name == "--rest") options.rest = seconds_of(arguments[i], name);
    } else if (name.starts_with("--")) {
      throw UsageError("unknown option " + name);
    } else {
      files.push_back(name);
    }
  }
  if (files.size() != (options.check ? 0 : 2)) throw UsageError("wrong number of files");
  if (options.check) return options;
  options.cases = files[0];
  options.out = files[1];
  return options;
}

double default_clock_mhz() {
  int khz = 0;
  LH_CUDA_CHECK(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0));
  return khz / 1e3;
}

// Throws CudaError where there is no GPU that runs the kernels.
cudaDeviceProp the_device() {
  cudaDeviceProp properties{};
  LH_CUDA_CHECK(cudaSetDevice(0));
  LH_CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  if (properties.major != 9) {
    throw CudaError(
        fmt::format("{} is sm_{}{}; these kernels are for sm_90", properties.name, properties.major, properties.minor));
  }
  return properties;
}

std::string driver_release() {
  // "NVRM version: ... 580.159.04  Release Build ...": the release is the first word of digits and dots.
  std::ifstream in("/proc/driver/nvidia/version");
  std::string word;
  while (in >> word) {
    if (word.find_first_not_of("0123456789.") == std::string::npos) return word;
  }
  return "unknown";
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[16] = "";
  std::strftime(text, sizeof text, "%Y-%m-%d", &utc);
  return text;
}

std::vector<std::string> head_lines(const cudaDeviceProp& device, const Options& options) {
  int driver = 0, runtime = 0;
  LH_CUDA_CHECK(cudaDriverGetVersion(&driver));
  LH_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  const auto version = [](int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); };
  std::vector<std::string> lines = {
      fmt::format("source: FlashAttention-3, {}, compiled by nvcc {}", FLASH_ATTENTION_REVISION, NVCC_RELEASE),
      fmt::format("device: {}, sm_{}{}, {} multiprocessors, {} bytes of memory, {} bytes of L2", device.name,
                  device.major, device.minor, device.multiProcessorCount, device.totalGlobalMem, device.l2CacheSize),
      fmt::format("driver: {} (CUDA {}), CUDA runtime {}", driver_release(), version(driver), version(runtime)),
      fmt::format("method: ms: all kernels of calls alone, L2 flushed, launch cost kept out: median, least and most of "
                  "reps samples, until the error of the mean is below 0.3 %, at most {} s, a pause of {} s before "
                  "each case; batch_ms: back to back for 0.1 s; bf16, one split, heads packed as the library decides",
                  options.seconds, options.rest),
      fmt::format("date: {}", today()),
      fmt::format("default clock: {:.0f} MHz", default_clock_mhz())};
  for (std::string& line : power_lines(0)) lines.push_back(std::move(line));
  return lines;
}

std::string row_of(const AttentionCase& one, const FlashCall& call, const Measurement& measured) {
  return fmt::format("{},{},{},{},{},{},{},{:.5f},{:.5f},{:.5f},{:.0f},{},{:.5f},{:.0f},{},{},{},{}\n", one.name,
                     one.backward ? "bwd" : "fwd", one.causal ? "causal" : "full", one.q_heads, one.kv_heads,
                     kFlashHeadDim, one.list, measured.ms.median, measured.ms.min, measured.ms.max, measured.clock_mhz,
                     measured.ms.count, measured.batch_ms, measured.batch_clock_mhz, one.longest,
                     one.dense ? "dense" : "varlen", call.packs_heads() ? 1 : 0, stop_name(measured.stop));
}

int time_cases(const Options& options) {
  std::vector<AttentionCase> cases = read_cases(options.cases);
  std::erase_if(cases, [&](const AttentionCase& one) { return !one.name.starts_with(options.names); });
  if (!kRunsDense && std::erase_if(cases, [](const AttentionCase& one) { return one.dense; }) > 0) {
    fmt::print(stderr, "flash-attention-3-bench: dense cases are left out, this was built for varlen alone\n");
  }
  if (cases.empty()) throw UsageError("no case is left");
  if (std::filesystem::exists(options.out)) throw UsageError(options.out + " is there already");
  const cudaDeviceProp device = the_device();
  std::ofstream out(options.out);
  for (const std::string& line : head_lines(device, options)) out << "# " << line << '\n';
  out << "name,pass,mask,q_heads,kv_heads,head_dim,list,ms,ms_min,ms_max,clock_mhz,reps,batch_ms,batch_clock_mhz,"
         "longest,layout,packed,stop\n";
  CallTimer timer;
  LoopLimits limits;
  limits.fewest_samples = 5;
  limits.least_seconds = 0.05;
  limits.most_seconds = options.seconds;
  limits.default_clock_mhz = default_clock_mhz();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const AttentionCase& one = cases[i];
    FlashCall call(one, timer.stream());
    CudaStopwatch stopwatch(timer, [&] { call.enqueue(); });
    for (int warm_up = 0; warm_up < kWarmUps; ++warm_up) call.enqueue();
    LH_CUDA_CHECK(cudaStreamSynchronize(timer.stream()));
    stopwatch.rest(options.rest);
    const Measurement measured = measure(stopwatch, limits);
    out << row_of(one, call, measured) << std::flush;
    if (!out) throw UsageError(options.out + " cannot be written");
    fmt::print(stderr, "{}/{} {} {}: {:.4f} ms, {:.0f} MHz\n", i + 1, cases.size(), one.name,
               one.backward ? "bwd" : "fwd", measured.ms.median, measured.clock_mhz);
  }
  return 0;
}

// Whether each kernel that the cases reach is checked: causal and full, variable lengths and dense, key heads shared or
// not, query heads packed or not, clusters of two blocks (dense, without a mask, an even number of query tiles).
std::vector<AttentionCase> checked_cases() {
  std::vector<AttentionCase> cases;
  const auto add = [&](int q_heads, int kv_heads, const std::string& list, bool dense, std::int64_t longest) {
    for (const bool backward : {false, true}) {
      for (const bool causal : {false, true}) {
        AttentionCase one;
        one.name =
            fmt::format("{}{}", dense ? "dense" : "varlen", longest > 0 ? fmt::format(" longest {}", longest) : "");
        one.backward = backward;
        one.causal = causal;
        one.dense = dense;
        one.q_heads = q_heads;
        one.kv_heads = kv_heads;
        one.list = list;
        one.entries = parse_list(list);
        one.longest = longest;
        cases.push_back(std::move(one));
      }
    }
  };
  const std::string list = "1*37x37;2*64x200;1*150x310;1*1x129;1*128x128";
  add(4, 1, list, false, 0);
  add(2, 2, list, false, 0);
  add(4, 2, list, false, 1500);
  if (!kRunsDense) return cases;
  add(4, 1, "2*64x200", true, 0);
  add(4, 2, "2*256x256", true, 0);
  add(2, 2, "2*200x300", true, 0);
  return cases;
}

int check() {
  the_device();
  CallTimer timer;
  int failures = 0;
  for (AttentionCase& one : checked_cases()) {
    FlashCall call(one, timer.stream());
    call.enqueue();
    const AttentionValues values = call.download();
    const auto worst_by = [&](const AttentionCase& by) {
      const ReferenceValues reference = reference_attention(by, values);
      std::vector<double> errors = {largest_error(values.o, reference.o)};
      if (by.backward) {
        errors.push_back(largest_error(values.d_q, reference.d_q));
        errors.push_back(largest_error(values.d_k, reference.d_k));
        errors.push_back(largest_error(values.d_v, reference.d_v));
      }
      return errors;
    };
    const std::vector<double> errors = worst_by(one);
    AttentionCase otherwise = one;
    otherwise.causal = !one.causal;
    const std::vector<double> blind = worst_by(otherwise);
    bool good = true;
    std::string text;
    for (std::size_t i = 0; i < errors.size(); ++i) {
      // The other mask's reference must be told apart, or the comparison says nothing.
      good = good && errors[i] <= kLargestError && blind[i] > kLargestError;
      text += fmt::format(" {} {:.2e}", (std::vector<const char*>{"O", "dQ", "dK", "dV"})[i], errors[i]);
    }
    if (!good) ++failures;
    fmt::print("{} {} {} {}:{} {}, heads {}: largest error{}\n", good ? "ok  " : "FAIL", one.backward ? "bwd" : "fwd",
               one.causal ? "causal" : "full", one.q_heads, one.kv_heads, one.name,
               call.packs_heads() ? "packed" : "apart", text);
  }
  fmt::print("{} of {} cases wrong (limit {})\n", failures, checked_cases().size(), kLargestError);
  return failures == 0 ? 0 : kWrong;
}

int run(const std::vector<std::string>& arguments) {
  try {
    const Options options = read_options(arguments);
    return options.check ? check() : time_cases(options);
  } catch (const UsageError& error) {
    fmt::print(stderr, "flash-attention-3-bench: {}\n{}", error.what(), kUsage);
    return kWrongInput;
  } catch (const CaseError& error) {
    fmt::print(stderr, "flash-attention-3-bench: {}\n", error.what());
    return kWrongInput;
  } catch (const std::exception& error) {
    fmt::print(stderr, "flash-attention-3-bench: {}\n", error.what());
    return kFault;
  }
}

}  // namespace
}  // namespace longhaul

int main(int argc, char** argv) { return longhaul::run({argv + 1, argv + argc}); }
