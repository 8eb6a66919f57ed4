#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "validate/gpu/calibrate/call_order.h"
#include "validate/gpu/calibrate/plan_parts.h"

namespace longhaul {
namespace {

struct Heads {
  std::int64_t q, kv;
};
// Llama 3 8B, 70B and its slices under tp, Qwen 2.5 7B and 14B, GPT (no groups), few heads a rank under Ulysses.
constexpr std::array kHeads = {Heads{32, 8}, Heads{64, 8}, Heads{8, 1}, Heads{16, 16},
                               Heads{28, 4}, Heads{40, 8}, Heads{4, 1}, Heads{32, 32}};

constexpr std::size_t kSingleProblems = 72, kVarlenProblems = 64, kDiffusionProblems = 62;
constexpr double kMostForwardFlop = 8e12;  // forward: about 13 ms of an H200
constexpr double kMostListFlop = 4e12;     // the ragged backward runs at half the rate
constexpr std::int64_t kMostKeyRows = 400'000;

struct Problem {
  Heads heads{};
  std::int64_t head_dim = 128;
  std::string mask = "causal", pieces, name;
};

void add_both_passes(std::vector<CalibrationCall>& calls, CallClass call_class, const Problem& problem) {
  for (const char* pass : {"fwd", "bwd"}) {
    CalibrationCall call;
    call.call_class = call_class;
    call.op = "attention";
    call.pass = pass;
    call.q_heads = problem.heads.q;
    call.kv_heads = problem.heads.kv;
    call.head_dim = problem.head_dim;
    call.mask = problem.mask;
    call.pieces = problem.pieces;
    call.name = problem.name;
    calls.push_back(std::move(call));
  }
}

// The longest length of which pairs = share x length^2 stay below the limit.
double length_limit(double most_flop, double share, const Heads& heads, std::int64_t head_dim) {
  return std::sqrt(most_flop / (4 * share * static_cast<double>(heads.q * head_dim)));
}

struct Side {
  std::int64_t q, k;
};

std::string text_of(const std::vector<Side>& pieces) {
  std::string text;
  for (const Side& piece : pieces) text += fmt::format("{}{}x{}", text.empty() ? "" : ";", piece.q, piece.k);
  return text;
}

// Lengths of documents about `median` (log-normal, a ratio of e a standard deviation) until `total` tokens are full, as
// pages and code of training sets have them; `first` turns the order of the sixteen quantiles.
std::vector<std::int64_t> documents(std::int64_t median, std::int64_t total, std::size_t first) {
  // exp of the normal quantiles (i + 1/2) / 16, i = 0 .. 15.
  constexpr std::array kRatios = {0.155, 0.268, 0.364, 0.458, 0.556, 0.663, 0.786, 0.925,
                                  1.081, 1.273, 1.508, 1.799, 2.185, 2.745, 3.737, 6.447};
  std::vector<std::int64_t> lengths;
  std::int64_t rows = 0;
  for (std::size_t i = first; rows < total; i += 7) {
    const auto wanted = std::llround(kRatios.at(i % kRatios.size()) * static_cast<double>(median));
    lengths.push_back(std::clamp<std::int64_t>(wanted, 1, total - rows));
    rows += lengths.back();
  }
  return lengths;
}

// Each document cut in 2 x ranks parts, of which `rank` has one from the front and its mirror image from the back; what
// is shorter than that stays whole on rank 0 alone.
std::vector<Side> zigzag_shards(const std::vector<std::int64_t>& lengths, std::int64_t ranks, std::int64_t rank) {
  std::vector<Side> pieces;
  for (const std::int64_t length : lengths) {
    const std::int64_t part = length / (2 * ranks);
    if (part == 0) continue;
    pieces.push_back({part, (rank + 1) * part});
    pieces.push_back({part, (2 * ranks - rank) * part});
  }
  return pieces;
}

// A slice of a pipeline: the end of a document that began `before` tokens earlier, then whole ones.
std::vector<Side> slice(const std::vector<std::int64_t>& lengths, std::int64_t before) {
  std::vector<Side> pieces;
  for (const std::int64_t length : lengths) pieces.push_back({length, length});
  pieces.front().k += before;
  return pieces;
}

double causal_pairs(const std::vector<Side>& pieces) {
  double pairs = 0;
  for (const auto& [q, k] : pieces)
    pairs += static_cast<double>(q) * (static_cast<double>(k) - static_cast<double>(q) / 2);
  return pairs;
}

std::int64_t key_rows(const std::vector<Side>& pieces) {
  std::int64_t rows = 0;
  for (const Side& piece : pieces) rows += piece.k;
  return rows;
}

Problem varlen_problem(std::size_t index, const std::vector<double>& point) {
  Problem problem;
  problem.heads = kHeads.at(item_at(point[0], kHeads.size()));
  problem.head_dim = index % 8 == 5 ? 64 : 128;
  std::int64_t median = std::int64_t{256} << item_at(point[1], 6);
  std::int64_t total = log_between(point[2], 4096, 65536, 256);
  const auto ranks = std::int64_t{1} << (1 + item_at(point[3], 3));
  for (;; total = total * 3 / 4) {
    const std::vector<std::int64_t> lengths = documents(median, total, index);
    std::vector<Side> pieces;
    std::string family;
    if (index % 3 == 0) {
      family = fmt::format("documents-{}", median);
      pieces = slice(lengths, 0);
    } else if (index % 3 == 1) {
      family = fmt::format("shards-{}", median);
      pieces = zigzag_shards(documents(median, 2 * total, index), ranks, static_cast<std::int64_t>(index) % ranks);
    } else {
      family = fmt::format("slice-{}", median);
      pieces = slice(lengths, total * ranks / 2);
    }
    const double flop = 4 * causal_pairs(pieces) * static_cast<double>(problem.heads.q * problem.head_dim);
    if (flop > kMostListFlop || key_rows(pieces) > kMostKeyRows) continue;
    if (pieces.size() < 2) {  // one document is a single call
      median /= 2;
      continue;
    }
    problem.pieces = text_of(pieces);
    problem.name = fmt::format("{}/{}.{}", family, index, pieces.size());
    return problem;
  }
}

}  // namespace

std::size_t item_at(double place, std::size_t size) {
  return std::min(size - 1, static_cast<std::size_t>(place * static_cast<double>(size)));
}

std::int64_t log_between(double place, double least, double most, std::int64_t step) {
  const double value = least * std::pow(most / least, place);
  return std::max<std::int64_t>(step, std::llround(value / static_cast<double>(step)) * step);
}

// Half of the problems causal squares, a fifth unmasked, the rest few queries against many keys (context parallelism,
// slices). Lengths: powers of two (one in four), multiples of 128 and of 8.
std::vector<CalibrationCall> attention_calls() {
  std::vector<CalibrationCall> calls;
  for (std::size_t i = 0; i < kSingleProblems; ++i) {
    const std::vector<double> point = even_point(i, 4);
    Problem problem;
    problem.heads = kHeads.at(item_at(point[1], kHeads.size()));
    problem.head_dim = point[2] < 0.65 ? 128 : point[2] < 0.85 ? 64 : 256;
    const std::size_t kind = i % 10;
    const bool square = kind < 7;
    problem.mask = kind == 5 || kind == 6 || kind == 9 ? "full" : "causal";
    const double share = problem.mask == "full" ? 1 : 0.5;
    const double limit = length_limit(kMostForwardFlop, share, problem.heads, problem.head_dim);
    std::int64_t k = log_between(point[0], 1024, std::min(65536.0, limit), i % 4 == 1 ? 8 : 128);
    if (i % 4 == 0) k = std::int64_t{1} << static_cast<int>(std::log2(k));
    std::int64_t q = k;
    if (!square) {  // fewer queries, so more keys fit
      k = std::min<std::int64_t>(65536, 2 * k);
      q = std::max<std::int64_t>(128, k >> (2 + item_at(point[3], 4)));
    }
    problem.pieces = text_of({{q, k}});
    problem.name = fmt::format("{}{}-{}-{}/{}", square ? "" : "range-", problem.mask, problem.head_dim,
                               std::int64_t{1} << static_cast<int>(std::log2(k)), problem.pieces);
    add_both_passes(calls, CallClass::kAttention, problem);
  }
  return calls;
}

// Packed documents, shards of packed documents, and slices, in turn.
std::vector<CalibrationCall> varlen_calls() {
  std::vector<CalibrationCall> calls;
  for (std::size_t i = 0; i < kVarlenProblems; ++i) {
    add_both_passes(calls, CallClass::kVarlen, varlen_problem(i, even_point(i, 4)));
  }
  return calls;
}

// Blocks of 16 to 1,024 tokens, some no powers of two; every fourth problem two sequences; clean tokens see by blocks,
// in every third problem by tokens.
std::vector<CalibrationCall> diffusion_calls() {
  constexpr std::array<std::int64_t, 9> kBlocks = {16, 32, 48, 64, 128, 256, 384, 512, 1024};
  std::vector<CalibrationCall> calls;
  for (std::size_t i = 0; i < kDiffusionProblems; ++i) {
    const std::vector<double> point = even_point(i, 3);
    Problem problem;
    problem.heads = kHeads.at(item_at(point[0], kHeads.size()));
    problem.head_dim = i % 5 == 3 ? 64 : 128;
    const std::int64_t block = kBlocks.at(item_at(point[1], kBlocks.size()));
    problem.mask = fmt::format("block-diffusion{}:{}", i % 3 == 2 ? "-token" : "", block);
    // Head dimensions other than 128 go through the portable kernel, several times slower.
    const double most_flop = problem.head_dim == 128 ? kMostListFlop : kMostListFlop / 4;
    const double most = length_limit(most_flop, 1, problem.heads, problem.head_dim);
    const std::int64_t length = log_between(point[2], 2048, std::min(49152.0, most), i % 2 == 0 ? 256 : 16);
    const std::int64_t second = i % 4 == 1 ? length / 3 : 0;
    problem.pieces =
        second == 0 ? text_of({{length, length}}) : text_of({{length - second, length - second}, {second, second}});
    problem.name = fmt::format("diffusion-{}-{}/{}", problem.head_dim, block, problem.pieces);
    add_both_passes(calls, CallClass::kDiffusion, problem);
  }
  return calls;
}

}  // namespace longhaul
