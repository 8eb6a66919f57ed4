#include "validate/gpu/attention_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/algorithm/string.hpp>
#include <boost/lexical_cast.hpp>
#include <utility>

namespace longhaul {
namespace {

constexpr std::int64_t kMostRows = std::int64_t{1} << 30;
const std::vector<std::string>& mask_names() {
  static const std::vector<std::string> names = {"causal", "full", "block-diffusion:B", "block-diffusion-token:B"};
  return names;
}

struct Mask {
  bool causal = false, diffusion = false, token_causal = false;
  std::int32_t block = 0;
};

bool read(const std::string& text, std::int64_t least, std::int64_t& value) {
  return boost::conversion::try_lexical_convert(text, value) && value >= least && value < kMostRows;
}

bool read_mask(const std::string& text, Mask& mask) {
  if (text == "full") return true;
  mask.causal = text == "causal";
  if (mask.causal) return true;
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return false;
  const std::string kind = text.substr(0, colon);
  mask.diffusion = kind == "block-diffusion" || kind == "block-diffusion-token";
  mask.token_causal = kind == "block-diffusion-token";
  std::int64_t block = 0;
  if (!read(text.substr(colon + 1), 1, block)) return false;
  mask.block = static_cast<std::int32_t>(block);
  return mask.diffusion;
}

Piece piece_at(std::int64_t q_row, std::int64_t q, std::int64_t k_row, std::int64_t k, MaskRule rule) {
  Piece piece;
  piece.q_row = q_row;
  piece.q_count = q;
  piece.k_row = k_row;
  piece.k_count = k;
  piece.rule = rule;
  if (rule == MaskRule::kCausal) piece.q_token = k - q;
  return piece;
}

// csbp.md 2.1, 2.2: the corrupted copy sees its own block and the clean blocks before it; clean sees clean.
void add_diffusion(AttentionCall& call, std::int64_t length, const Mask& mask) {
  const std::int64_t noisy = call.q_rows, clean = call.q_rows + length;
  Piece own = piece_at(noisy, length, noisy, length, MaskRule::kBlockDiagonal);
  Piece before = piece_at(noisy, length, clean, length, MaskRule::kBlockCausalStrict);
  Piece among = piece_at(clean, length, clean, length, mask.token_causal ? MaskRule::kCausal : MaskRule::kBlockCausal);
  for (Piece* piece : {&own, &before, &among}) {
    piece->block = mask.block;
    call.pieces.push_back(*piece);
  }
  call.q_rows += 2 * length;
  call.k_rows += 2 * length;
}

// Why the part cannot run; empty if it was added.
std::string add_part(AttentionCall& call, const std::string& part, const Mask& mask) {
  std::vector<std::string> sides;
  boost::split(sides, part, boost::is_any_of("x"));
  std::int64_t q = 0, k = 0;
  if (sides.size() != 2 || !read(sides[0], 1, q) || !read(sides[1], 1, k)) return "is not QxK";
  if (mask.diffusion && q != k) return "is not square";
  if (mask.causal && q > k) return "has queries that see no key";
  if (call.q_rows + 2 * q >= kMostRows || call.k_rows + 2 * k >= kMostRows) return "goes past 2^30 rows";
  if (mask.diffusion) {
    add_diffusion(call, q, mask);
    return "";
  }
  call.pieces.push_back(piece_at(call.q_rows, q, call.k_rows, k, mask.causal ? MaskRule::kCausal : MaskRule::kFull));
  call.q_rows += q;
  call.k_rows += k;
  return "";
}

std::string repeated(std::int64_t q, std::int64_t k, int count) {
  std::string text = fmt::format("{}x{}", q, k);
  for (int i = 1; i < count; ++i) text += fmt::format(";{}x{}", q, k);
  return text;
}

// Documents whose lengths are log-normal quantiles about `median` (sigma 1: a ratio of e a standard deviation), in a
// mixed order, until `total` tokens are full.
std::string documents(std::int64_t median, std::int64_t total) {
  // exp of the normal quantiles (i + 1/2) / 16, i = 0 .. 15.
  constexpr double kRatios[] = {0.155, 0.268, 0.364, 0.458, 0.556, 0.663, 0.786, 0.925,
                                1.081, 1.273, 1.508, 1.799, 2.185, 2.745, 3.737, 6.447};
  std::string text;
  std::int64_t rows = 0;
  for (int i = 0; rows < total; i = (i + 7) % 16) {
    const auto wanted = static_cast<std::int64_t>(kRatios[i] * static_cast<double>(median));
    const std::int64_t length = std::min(std::max<std::int64_t>(1, wanted), total - rows);
    text += fmt::format("{}{}x{}", rows == 0 ? "" : ";", length, length);
    rows += length;
  }
  return text;
}

void add_plain(std::vector<AttentionRow>& rows, bool quick) {
  for (const std::int64_t length : {2048, 4096, 8192, 16384, 32768, 65536}) {
    if (quick && length != 16384) continue;
    rows.push_back({fmt::format("causal-{}", length), 32, 8, 128, "causal", fmt::format("{0}x{0}", length)});
  }
  if (quick) return;
  for (const std::int64_t length : {4096, 16384}) {
    rows.push_back({fmt::format("full-{}", length), 32, 8, 128, "full", fmt::format("{0}x{0}", length)});
    rows.push_back({fmt::format("causal-mha-{}", length), 16, 16, 128, "causal", fmt::format("{0}x{0}", length)});
    rows.push_back({fmt::format("causal-few-heads-{}", length), 4, 1, 128, "causal", fmt::format("{0}x{0}", length)});
    rows.push_back({fmt::format("causal-64-{}", length), 32, 8, 64, "causal", fmt::format("{0}x{0}", length)});
  }
}

void add_packed(std::vector<AttentionRow>& rows, bool quick) {
  for (const std::int64_t median : {256, 512, 1024, 2048, 4096}) {
    for (const std::int64_t total : {8192, 32768, 65536}) {
      if (quick && (median != 1024 || total != 32768)) continue;
      if (total == 65536 && median != 1024) continue;
      rows.push_back({fmt::format("documents-{}-{}", median, total), 32, 8, 128, "causal", documents(median, total)});
    }
  }
}

void add_shards(std::vector<AttentionRow>& rows, bool quick) {
  for (const std::int64_t keys : {8192, 16384, 65536}) {
    for (const std::int64_t queries : {512, 2048, 4096}) {
      if (quick && (keys != 16384 || queries != 2048)) continue;
      rows.push_back(
          {fmt::format("shard-{}-{}", queries, keys), 32, 8, 128, "causal", fmt::format("{}x{}", queries, keys)});
      rows.push_back(
          {fmt::format("ring-{}-{}", queries, keys), 32, 8, 128, "full", fmt::format("{}x{}", queries, keys)});
      rows.push_back(
          {fmt::format("slices-{}-{}", queries, keys), 32, 8, 128, "causal", repeated(queries / 4, keys / 4, 4)});
    }
  }
}

void add_block_diffusion(std::vector<AttentionRow>& rows, bool quick) {
  for (const std::int64_t length : {16384, 32768, 65536}) {
    for (const int block : {16, 32, 64, 128, 256, 512, 1024}) {
      if (quick && (length != 16384 || block != 16)) continue;
      rows.push_back({fmt::format("diffusion-{}-{}", length, block), 32, 8, 128,
                      fmt::format("block-diffusion:{}", block), fmt::format("{0}x{0}", length)});
    }
  }
}

}  // namespace

Expected<AttentionCall> attention_call(const AttentionRow& row) {
  Errors errors;
  Mask mask;
  if (!read_mask(row.mask, mask)) {
    errors.push_back({row.name, "mask", fmt::format("is \"{}\"", row.mask),
                      fmt::format("one of {}", boost::join(mask_names(), ", ")), nearest_name(row.mask, mask_names())});
    return tl::unexpected(errors);
  }
  AttentionCall call;
  call.block_diffusion = mask.diffusion;
  std::vector<std::string> parts;
  boost::split(parts, row.pieces, boost::is_any_of(";"));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string why = add_part(call, parts[i], mask);
    if (!why.empty()) {
      errors.push_back({row.name, fmt::format("pieces, {} of {}", i + 1, parts.size()),
                        fmt::format("\"{}\" {}", parts[i], why), "QxK;QxK;... of whole numbers from 1", ""});
    }
  }
  if (!errors.empty()) return tl::unexpected(errors);
  for (const Piece& piece : call.pieces) call.pairs += piece_pairs(piece);
  return call;
}

double attention_flops(const AttentionRow& row, const AttentionCall& call, bool backward) {
  return (backward ? 10.0 : 4.0) * static_cast<double>(call.pairs) * static_cast<double>(row.head_dim * row.q_heads);
}

std::vector<AttentionRow> bench_rows(bool quick) {
  std::vector<AttentionRow> rows;
  add_plain(rows, quick);
  add_packed(rows, quick);
  add_shards(rows, quick);
  add_block_diffusion(rows, quick);
  return rows;
}

}  // namespace longhaul
