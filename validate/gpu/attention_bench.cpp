// attention-bench: times attention calls on the GPU, cuDNN and our own kernels side by side, as rows of `cost`.
#include <cudnn.h>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <exception>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/attention/piece_attention.h"
#include "kernels/cudnn/attention.h"
#include "validate/gpu/attention_rows.h"
#include "validate/gpu/calibrate/measuring_loop.h"
#include "validate/gpu/call_timer.h"
#include "validate/gpu/result_file.h"

namespace longhaul {
namespace {

constexpr int kWrongInput = 2;
constexpr int kFault = 4;
constexpr int kChosenGroups = 0;  // PieceAttention::backward_groups

std::vector<std::string> identity_lines() {
  int device = 0, driver = 0, runtime = 0;
  cudaDeviceProp properties{};
  LH_CUDA_CHECK(cudaGetDevice(&device));
  LH_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  LH_CUDA_CHECK(cudaDriverGetVersion(&driver));
  LH_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  const auto version = [](int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); };
  // "NVRM version: ... 580.159.04  Release Build ...": the release is the first word of digits and dots.
  std::ifstream in("/proc/driver/nvidia/version");
  std::string word, release = "unknown";
  while (release == "unknown" && in >> word) {
    if (word.find_first_not_of("0123456789.") == std::string::npos) release = word;
  }
  return {fmt::format("device: {}, sm_{}{}, {} multiprocessors, {} bytes of memory, {} bytes of L2", properties.name,
                      properties.major, properties.minor, properties.multiProcessorCount, properties.totalGlobalMem,
                      properties.l2CacheSize),
          fmt::format("driver: {}; CUDA {}", release, version(driver)),
          fmt::format("CUDA runtime {}, cuDNN {}", version(runtime), cudnnGetVersion()),
          "ms: of calls alone, L2 flushed, launch cost kept out (median, least and most of `samples`); batch_ms: back "
          "to back; tflops: unmasked pairs, backward 2.5 x forward, at the median"};
}

const std::vector<std::string>& columns() {
  static const std::vector<std::string> names = {
      "op",    "pass", "m",    "n",         "k",      "q_heads", "kv_heads", "head_dim", "mask",  "pieces",
      "bytes", "impl", "name", "ms_median", "ms_min", "ms_max",  "samples",  "batch_ms", "tflops"};
  return names;
}

template <class Version>
Version version_named(const std::vector<std::string>& names, const std::string& name) {
  return static_cast<Version>(std::find(names.begin(), names.end(), name) - names.begin());
}
const std::string& default_forward() { return hopper_forward_names()[static_cast<std::size_t>(kDefaultHopperForward)]; }
const std::string& default_backward() {
  return hopper_backward_names()[static_cast<std::size_t>(kDefaultHopperBackward)];
}

// What is timed of our Hopper kernels, one after the other; other kernels have one version and no groups.
struct Versions {
  std::vector<std::string> forward = {default_forward()}, backward = {default_backward()};
  std::vector<int> backward_groups = {kChosenGroups};
};

class Bench {
 public:
  Bench(ResultFile file, double seconds, Versions versions) : file_(std::move(file)), versions_(std::move(versions)) {
    limits_.most_seconds = seconds;
  }

  void run(const AttentionRow& row, const AttentionCall& call);

 private:
  void time(const AttentionRow& row, const AttentionCall& call, const std::string& impl, bool backward,
            const std::function<void()>& enqueue);
  void time_own(const AttentionRow& row, const AttentionCall& call, PieceAttention& own,
                const PieceAttention::Inputs& in, Bf16* o, float* lse, const PieceAttention::Gradients& gradients);
  // A kernel that cannot run a row is no fault of the row: said, and the others go on.
  void skip(const AttentionRow& row, const std::string& impl, const std::exception& why) const {
    fmt::print(stderr, "{} {}: left out: {}\n", row.name, impl, why.what());
  }

  ResultFile file_;
  Versions versions_;
  CallTimer timer_;
  LoopLimits limits_;
  CudnnAttention cudnn_;
};

void Bench::time(const AttentionRow& row, const AttentionCall& call, const std::string& impl, bool backward,
                 const std::function<void()>& enqueue) {
  const std::string pass = backward ? "bwd" : "fwd";
  std::vector<std::string> fields = {"attention",
                                     pass,
                                     "",
                                     "",
                                     "",
                                     std::to_string(row.q_heads),
                                     std::to_string(row.kv_heads),
                                     std::to_string(row.head_dim),
                                     row.mask,
                                     row.pieces,
                                     "",
                                     impl,
                                     row.name};
  if (file_.has({pass, impl, row.name})) {
    if (!backward) enqueue();  // a backward pass that is still to be timed reads what it writes
    return;
  }
  for (int i = 0; i < 2; ++i) enqueue();  // plans, scratch and modules are made here
  LH_CUDA_CHECK(cudaStreamSynchronize(timer_.stream()));
  CudaStopwatch stopwatch(timer_, enqueue);
  const Measurement times = measure(stopwatch, limits_);
  const double rate = attention_flops(row, call, backward) / times.ms.median * 1e-9;
  for (const double ms : {times.ms.median, times.ms.min, times.ms.max}) fields.push_back(fmt::format("{:.5f}", ms));
  fields.push_back(std::to_string(times.ms.count));
  fields.push_back(fmt::format("{:.5f}", times.batch_ms));
  fields.push_back(fmt::format("{:.1f}", rate));
  file_.append(fields);
  fmt::print("{:28} {:14} {} {:9.4f} ms ({:.4f} .. {:.4f}, {}) batch {:.4f}  {:6.1f} TFLOP/s\n", row.name, impl, pass,
             times.ms.median, times.ms.min, times.ms.max, times.ms.count, times.batch_ms, rate);
  std::fflush(stdout);
}

// `o` and `lse` are those of `in`, to write.
void Bench::time_own(const AttentionRow& row, const AttentionCall& call, PieceAttention& own,
                     const PieceAttention::Inputs& in, Bf16* o, float* lse,
                     const PieceAttention::Gradients& gradients) {
  const cudaStream_t stream = timer_.stream();
  const bool hopper = own.kernel() == PieceAttention::Kernel::kHopper;
  const std::string impl = hopper ? "longhaul-hopper" : "longhaul-portable";
  const Versions versions = hopper ? versions_ : Versions{};
  const PiecePlan plan = own.plan(call.pieces, call.q_rows, call.k_rows, stream);
  for (const std::string& version : versions.forward) {
    own.use(version_named<HopperForwardVersion>(hopper_forward_names(), version));
    time(row, call, impl + (version == default_forward() ? "" : "-" + version), false,
         [&] { own.forward(plan, in.q, in.k, in.v, o, lse, stream); });
  }
  for (const int group : versions.backward_groups) {
    BackwardGroups groups = own.backward_groups();
    if (group != kChosenGroups) groups.tiles = group;
    const std::string in_step = group == kChosenGroups ? "" : fmt::format("-x{}", group);
    const PieceBackwardPlan backward = own.plan_backward(call.pieces, call.q_rows, call.k_rows, stream, groups);
    for (const std::string& version : versions.backward) {
      own.use(version_named<HopperBackwardVersion>(hopper_backward_names(), version));
      time(row, call, impl + (version == default_backward() ? "" : "-" + version) + in_step, true,
           [&] { own.backward(backward, in, gradients, stream); });
    }
  }
}

void Bench::run(const AttentionRow& row, const AttentionCall& call) {
  const cudaStream_t stream = timer_.stream();
  const auto q_size = static_cast<std::size_t>(call.q_rows * row.q_heads * row.head_dim);
  const auto k_size = static_cast<std::size_t>(call.k_rows * row.kv_heads * row.head_dim);
  DeviceBuffer<Bf16> q(q_size), k(k_size), v(k_size), o(q_size), d_o(q_size), d_q(q_size), d_k(k_size), d_v(k_size);
  DeviceBuffer<float> lse(static_cast<std::size_t>(call.q_rows * row.q_heads));
  unsigned seed = 0;
  for (auto* buffer : {&q, &k, &v, &d_o}) fill_with_noise(buffer->data(), buffer->size(), ++seed, stream);

  const AttentionShape shape{static_cast<int>(row.q_heads), static_cast<int>(row.kv_heads),
                             static_cast<int>(row.head_dim)};
  try {
    PieceAttention own(shape);
    time_own(row, call, own, {q.data(), k.data(), v.data(), o.data(), lse.data(), d_o.data()}, o.data(), lse.data(),
             {d_q.data(), d_k.data(), d_v.data()});
  } catch (const std::invalid_argument& why) {
    skip(row, "longhaul", why);
  }
  if (call.block_diffusion) return;  // no one call of cuDNN
  const CudnnBatch batch(problem_of_pieces(call.pieces, row.q_heads, row.kv_heads, row.head_dim), stream);
  const CudnnAttention::Inputs in{q.data(), k.data(), v.data()};
  const std::string impl = batch.shape().ragged ? "cudnn-ragged" : "cudnn";
  time(row, call, impl, false, [&] { cudnn_.forward(batch, in, o.data(), lse.data(), stream); });
  time(row, call, impl, true, [&] {
    cudnn_.backward(batch, in, o.data(), lse.data(), d_o.data(), {d_q.data(), d_k.data(), d_v.data()}, stream);
  });
}

int report(const Errors& errors) {
  for (const InputError& error : errors) fmt::print(stderr, "{}\n", error.to_string());
  return kWrongInput;
}

struct Options {
  std::string out, only;
  std::vector<std::string> names;
  Versions versions;
  bool list = false, resume = false, quick = false;
  double seconds = 0.15;
};

// Rows by name in the order asked for, or all of them; those whose name holds `only`.
Expected<std::vector<AttentionRow>> chosen_rows(const Options& options) {
  const std::vector<AttentionRow> all = bench_rows(options.quick);
  std::vector<AttentionRow> rows;
  std::vector<std::string> known;
  for (const AttentionRow& row : all) known.push_back(row.name);
  Errors errors;
  for (const std::string& name : options.names) {
    const auto at = std::find(known.begin(), known.end(), name);
    if (at == known.end()) {
      errors.push_back(
          {"--names", "", fmt::format("\"{}\" is no row", name), "a row of --list", nearest_name(name, known)});
    } else {
      rows.push_back(all[static_cast<std::size_t>(at - known.begin())]);
    }
  }
  if (!errors.empty()) return tl::unexpected(errors);
  if (options.names.empty()) rows = all;
  std::erase_if(rows, [&](const AttentionRow& row) { return row.name.find(options.only) == std::string::npos; });
  return rows;
}

// The rows as attention_torch.py reads them to compile ahead; needs no GPU.
void list(const std::vector<AttentionRow>& rows) {
  fmt::print("name,q_heads,kv_heads,head_dim,mask,pieces\n");
  for (const AttentionRow& row : rows) {
    fmt::print("{},{},{},{},{},{}\n", row.name, row.q_heads, row.kv_heads, row.head_dim, row.mask, row.pieces);
  }
}

int run(const Options& options) {
  const auto rows = chosen_rows(options);
  if (!rows) return report(rows.error());
  if (options.list) {
    list(*rows);
    return 0;
  }
  const std::string date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  auto file = ResultFile::open(options.out, {identity_lines(), {"date: " + date}, columns(), {"pass", "impl", "name"}},
                               options.resume);
  if (!file) return report(file.error());
  Bench bench(std::move(*file), options.seconds, options.versions);
  for (const AttentionRow& row : *rows) {
    const Expected<AttentionCall> call = attention_call(row);
    if (!call) return report(call.error());
    bench.run(row, *call);
  }
  return 0;
}

}  // namespace
}  // namespace longhaul

int main(int argc, char** argv) {
  CLI::App app(
      "Times attention calls on this GPU: cuDNN and our own kernels side by side, as rows of `longhaul cost`.");
  longhaul::Options options;
  auto* out = app.add_option("--out", options.out, "CSV file to write");
  app.add_option("--only", options.only, "rows whose name holds this text");
  app.add_option("--names", options.names, "these rows, in this order")->delimiter(',');
  app.add_option("--forward-versions", options.versions.forward, "of our Hopper kernel, timed one after the other")
      ->delimiter(',')
      ->check(CLI::IsMember(longhaul::hopper_forward_names()));
  app.add_option("--backward-versions", options.versions.backward, "of our Hopper kernel, timed one after the other")
      ->delimiter(',')
      ->check(CLI::IsMember(longhaul::hopper_backward_names()));
  app.add_option("--backward-groups", options.versions.backward_groups,
                 "most key tiles joined, of our Hopper kernel (0: its default), each with every version")
      ->delimiter(',')
      ->check(CLI::Range(0, 1024));
  app.add_option("--seconds", options.seconds, "time for the samples of one call")->check(CLI::Range(0.001, 60.0));
  app.add_flag("--resume", options.resume, "go on with the file that is there");
  app.add_flag("--quick", options.quick, "one row of each kind");
  app.add_flag("--list", options.list, "write the rows to standard output, time nothing")->excludes(out);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : longhaul::kWrongInput;
  }
  if (!options.list && options.out.empty()) {
    fmt::print(stderr, "attention-bench: needs --out FILE, or --list\n");
    return longhaul::kWrongInput;
  }
  try {
    return longhaul::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "attention-bench: {}\n", error.what());
    return longhaul::kFault;
  }
}
