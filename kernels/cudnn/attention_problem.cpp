#include "kernels/cudnn/attention_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace longhaul {
namespace {

// cuDNN's offsets are 64-bit, but its kernels count rows and tiles in 32 bits.
constexpr std::int64_t kMostRows = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kMostHeads = 65535;

void check_heads(const CudnnAttentionProblem& problem, std::vector<std::string>& reasons) {
  if (problem.head_dim != 64 && problem.head_dim != 128 && problem.head_dim != 256) {
    reasons.push_back(fmt::format("head dimension {}; supported are 64, 128 and 256", problem.head_dim));
  }
  if (problem.q_heads < 1 || problem.kv_heads < 1 || problem.q_heads > kMostHeads ||
      problem.q_heads % std::max<std::int64_t>(1, problem.kv_heads) != 0) {
    reasons.push_back(
        fmt::format("{} query heads for {} key heads; each key head serves the same number of query heads, {} at most",
                    problem.q_heads, problem.kv_heads, kMostHeads));
  }
}

void check_sequence(std::size_t index, const CudnnSequence& sequence, CudnnMask mask,
                    std::vector<std::string>& reasons) {
  const auto inside = [](std::int64_t row, std::int64_t count) {
    return row >= 0 && count >= 1 && count <= kMostRows && row <= kMostRows - count;
  };
  if (!inside(sequence.q_row, sequence.q_count) || !inside(sequence.k_row, sequence.k_count)) {
    reasons.push_back(fmt::format(
        "sequence {}: query rows {} + {}, key rows {} + {}; rows start at 0 or later, counts are at least 1, and all "
        "stay below 2^31",
        index, sequence.q_row, sequence.q_count, sequence.k_row, sequence.k_count));
  } else if (mask == CudnnMask::kCausalBottomRight && sequence.q_count > sequence.k_count) {
    reasons.push_back(fmt::format(
        "sequence {}: {} queries for {} keys; under the bottom-right mask the first queries would see no key", index,
        sequence.q_count, sequence.k_count));
  }
}

bool ranges_meet(std::vector<std::pair<std::int64_t, std::int64_t>> ranges) {
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 0; i + 1 < ranges.size(); ++i) {
    if (ranges[i].first + ranges[i].second > ranges[i + 1].first) return true;
  }
  return false;
}

// The masks, of all three, that say what the piece's rule says.
std::vector<CudnnMask> masks_of(const Piece& piece) {
  if (piece.q_run != 0 || piece.k_run != 0) return {};
  if (piece.rule == MaskRule::kFull) return {CudnnMask::kFull};
  if (piece.rule != MaskRule::kCausal) return {};
  std::vector<CudnnMask> masks;
  if (piece.q_token == piece.k_token) masks.push_back(CudnnMask::kCausalTopLeft);
  if (piece.q_token + piece.q_count == piece.k_token + piece.k_count) masks.push_back(CudnnMask::kCausalBottomRight);
  return masks;
}

}  // namespace

std::vector<std::string> refusals(const CudnnAttentionProblem& problem, bool backward) {
  std::vector<std::string> reasons;
  check_heads(problem, reasons);
  if (problem.sequences.empty()) reasons.emplace_back("no sequences; a call has at least one");
  std::vector<std::pair<std::int64_t, std::int64_t>> queries, keys;
  for (std::size_t i = 0; i < problem.sequences.size(); ++i) {
    const CudnnSequence& sequence = problem.sequences[i];
    check_sequence(i, sequence, problem.mask, reasons);
    queries.emplace_back(sequence.q_row, sequence.q_count);
    keys.emplace_back(sequence.k_row, sequence.k_count);
  }
  if (!reasons.empty()) return reasons;
  if (ranges_meet(queries)) reasons.emplace_back("two sequences share query rows; each row of the output has one");
  if (backward && ranges_meet(keys)) {
    reasons.emplace_back("two sequences share key rows; in a backward call each key row belongs to one");
  }
  return reasons;
}

bool is_dense(std::span<const CudnnSequence> sequences) {
  if (sequences.empty()) return false;
  const CudnnSequence& first = sequences.front();
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const auto step = static_cast<std::int64_t>(i);
    const CudnnSequence expected{first.q_row + step * first.q_count, first.q_count, first.k_row + step * first.k_count,
                                 first.k_count};
    if (sequences[i] != expected) return false;
  }
  return true;
}

CudnnAttentionProblem problem_of_pieces(std::span<const Piece> pieces, std::int64_t q_heads, std::int64_t kv_heads,
                                        std::int64_t head_dim) {
  CudnnAttentionProblem problem{q_heads, kv_heads, head_dim, CudnnMask::kFull, {}, false};
  // Square pieces are both: a backward call skips masked tiles under the top-left mask only (16,384 causal on an H200
  // with cuDNN 9.19, 2026-11-29: 20.9 ms bottom-right; 10.6 ms through PyTorch, which asks for top-left).
  std::vector<CudnnMask> possible = {CudnnMask::kFull, CudnnMask::kCausalTopLeft, CudnnMask::kCausalBottomRight};
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::vector<CudnnMask> masks = masks_of(pieces[i]);
    if (masks.empty()) {
      throw std::invalid_argument(
          fmt::format("cuDNN attention: piece {} is neither full nor causal from its first or to its last token", i));
    }
    std::erase_if(possible, [&](CudnnMask mask) { return std::find(masks.begin(), masks.end(), mask) == masks.end(); });
    if (possible.empty()) {
      throw std::invalid_argument(fmt::format("cuDNN attention: piece {} has another mask than those before it", i));
    }
    problem.sequences.push_back({pieces[i].q_row, pieces[i].q_count, pieces[i].k_row, pieces[i].k_count});
  }
  problem.mask = possible.front();
  return problem;
}

}  // namespace longhaul
