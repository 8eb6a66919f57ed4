// Inputs and piece lists that the tests of attention share.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention/attention_reference.h"
#include "kernels/common/bf16.h"
#include "sim/schedule/piece.h"

namespace longhaul {

// Uniform in [-scale, scale), rounded to bf16.
inline std::vector<Bf16> random_rows(std::int64_t size, std::uint32_t seed, float scale = 1.0F) {
  std::mt19937 random(seed);
  std::vector<Bf16> values(static_cast<std::size_t>(size));
  for (Bf16& value : values) value = to_bf16(scale * (static_cast<float>(random()) * 0x1p-31F - 1.0F));
  return values;
}

inline Piece piece_of(std::int64_t q_row, std::int64_t q_count, std::int64_t k_row, std::int64_t k_count,
                      MaskRule rule) {
  Piece piece;
  piece.q_row = q_row;
  piece.q_count = q_count;
  piece.k_row = k_row;
  piece.k_count = k_count;
  piece.rule = rule;
  return piece;
}

// Causal, the last query sees the last key.
inline Piece bottom_right(std::int64_t q_row, std::int64_t q_count, std::int64_t k_row, std::int64_t k_count) {
  Piece piece = piece_of(q_row, q_count, k_row, k_count, MaskRule::kCausal);
  piece.q_token = k_count - q_count;
  return piece;
}

// Documents of these lengths, one after the other, each causal.
inline std::vector<Piece> packed_documents(const std::vector<std::int64_t>& lengths) {
  std::vector<Piece> pieces;
  std::int64_t row = 0;
  for (const std::int64_t length : lengths) {
    pieces.push_back(bottom_right(row, length, row, length));
    row += length;
  }
  return pieces;
}

// csbp.md 2.1: rows 0 .. tokens-1 corrupted, then the clean ones; blocks of `block`.
inline std::vector<Piece> block_diffusion(std::int64_t tokens, std::int32_t block, bool token_causal) {
  std::vector<Piece> pieces = {
      piece_of(0, tokens, 0, tokens, MaskRule::kBlockDiagonal),
      piece_of(0, tokens, tokens, tokens, MaskRule::kBlockCausalStrict),
      piece_of(tokens, tokens, tokens, tokens, token_causal ? MaskRule::kCausal : MaskRule::kBlockCausal)};
  for (Piece& piece : pieces) piece.block = block;
  return pieces;
}

struct AttentionCase {
  std::string name;
  ReferenceShape shape;
  std::vector<Piece> pieces;
};

// Every rule and shape of a list that the planner treats differently; head dimension `dim`.
inline std::vector<AttentionCase> attention_cases(std::int64_t dim) {
  std::vector<AttentionCase> cases;
  const auto add = [&](std::string name, std::int64_t q_rows, std::int64_t k_rows, std::int64_t q_heads,
                       std::int64_t kv_heads, std::vector<Piece> pieces) {
    cases.push_back({std::move(name), {q_rows, k_rows, q_heads, kv_heads, dim}, std::move(pieces)});
  };
  add("causal", 300, 300, 4, 2, packed_documents({300}));
  add("aligned", 256, 256, 2, 1, packed_documents({256}));
  add("full", 130, 517, 2, 2, {piece_of(0, 130, 0, 517, MaskRule::kFull)});
  add("shard", 100, 700, 2, 1, {bottom_right(0, 100, 0, 700)});
  add("one_row", 1, 1, 1, 1, {piece_of(0, 1, 0, 1, MaskRule::kFull)});
  add("documents", 779, 779, 2, 2, packed_documents({1, 2, 63, 64, 65, 127, 128, 129, 200}));
  std::vector<std::int64_t> many(60, 7);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] += static_cast<std::int64_t>(i % 9);
  std::int64_t rows = 0;
  for (const std::int64_t length : many) rows += length;
  add("many_short", rows, rows, 16, 4, packed_documents(many));
  add("diffusion_16", 400, 400, 2, 1, block_diffusion(200, 16, false));
  add("diffusion_48", 500, 500, 2, 2, block_diffusion(250, 48, false));
  add("diffusion_token_300", 700, 700, 1, 1, block_diffusion(350, 300, true));
  // Keys in three pieces, out of order, and rows 0-9 and 190-199 in none.
  add("parts", 200, 640, 2, 1,
      {piece_of(10, 180, 500, 140, MaskRule::kFull), bottom_right(10, 180, 100, 300),
       piece_of(50, 60, 0, 33, MaskRule::kFull)});
  // Every other run of 8 tokens of blocks of 16, on both sides.
  Piece strided = piece_of(0, 160, 0, 160, MaskRule::kBlockCausal);
  strided.block = 16;
  strided.q_run = strided.k_run = 8;
  strided.q_stride = strided.k_stride = 16;
  strided.k_token = 8;
  add("strided", 160, 160, 2, 1, {strided});
  add("no_pieces", 70, 10, 1, 1, {});
  add("long", 1100, 1100, 1, 1, packed_documents({1100}));
  return cases;
}

}  // namespace longhaul
