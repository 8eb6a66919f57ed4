#include "sim/workload/batch.h"

#include <bit>

#include "sim/core/invariant.h"
#include "sim/core/mix.h"

namespace longhaul {
namespace {

std::uint64_t position_hash(DocumentId document, std::int64_t position, std::uint64_t salt) {
  return mix(mix(static_cast<std::uint64_t>(document) ^ salt) + static_cast<std::uint64_t>(position));
}

constexpr std::uint64_t kTokenSalt = 0x746f6b656e000000ULL;
constexpr std::uint64_t kNoiseSalt = 0x6e6f697365000000ULL;
constexpr std::int64_t kWordTokens = 64;

// Bit i says whether token 64 x word + i of the document is corrupted: one hash serves 64 tokens.
std::uint64_t corruption_word(DocumentId document, std::int64_t word) {
  return position_hash(document, word, kNoiseSalt);
}

std::int64_t corrupted_tokens(DocumentId document, std::int64_t tokens) {
  std::int64_t count = 0;
  for (std::int64_t word = 0; word * kWordTokens < tokens; ++word) {
    std::uint64_t bits = corruption_word(document, word);
    const std::int64_t left = tokens - word * kWordTokens;
    if (left < kWordTokens) bits &= (std::uint64_t{1} << left) - 1;
    count += std::popcount(bits);
  }
  return count;
}

}  // namespace

std::int64_t Batch::tokens() const {
  std::int64_t sum = 0;
  for (const std::int64_t length : documents) sum += length;
  return sum;
}

std::int64_t document_pairs(std::int64_t tokens, const Objective& objective) {
  LH_ASSERT(tokens >= 0 && tokens < (std::int64_t{1} << 31), "document of {} tokens", tokens);
  if (objective.kind == ObjectiveKind::kCausalLm) return tokens * (tokens + 1) / 2;
  LH_ASSERT(objective.block_tokens > 0, "block of {} tokens", objective.block_tokens);
  const std::int64_t block = objective.block_tokens;
  const std::int64_t whole = tokens / block;
  const std::int64_t rest = tokens % block;
  // A block of s tokens that starts at token p sees s noisy keys and p clean ones (noisy rows), p + s clean ones
  // (clean rows).
  const std::int64_t local = whole * block * block + rest * rest;
  const std::int64_t before = block * block * (whole * (whole - 1) / 2) + rest * whole * block;
  return 2 * (local + before);
}

std::int64_t batch_pairs(const Batch& batch) {
  std::int64_t sum = 0;
  for (const std::int64_t tokens : batch.documents) {
    const bool overflow = __builtin_add_overflow(sum, document_pairs(tokens, batch.objective), &sum);
    LH_ASSERT(!overflow, "pairs of {} documents pass 64 bits", batch.documents.size());
  }
  return sum;
}

std::int64_t batch_rows(const Batch& batch) {
  return batch.objective.kind == ObjectiveKind::kBlockDiffusion ? 2 * batch.tokens() : batch.tokens();
}

std::int64_t counted_tokens(const Batch& batch) {
  if (batch.objective.kind == ObjectiveKind::kCausalLm) {
    return batch.tokens() - static_cast<std::int64_t>(batch.documents.size());
  }
  std::int64_t count = 0;
  for (std::size_t i = 0; i < batch.documents.size(); ++i) {
    count += corrupted_tokens(static_cast<DocumentId>(i), batch.documents[i]);
  }
  return count;
}

std::int64_t token_id(DocumentId document, std::int64_t position, std::int64_t vocab) {
  LH_ASSERT(vocab >= 2, "vocabulary of {}", vocab);
  const auto ordinary = static_cast<std::uint64_t>(vocab - 1);  // the last id is the mask token
  return static_cast<std::int64_t>(position_hash(document, position, kTokenSalt) % ordinary);
}

bool is_corrupted(DocumentId document, std::int64_t position) {
  return (corruption_word(document, position / kWordTokens) >> (position % kWordTokens)) & 1;
}

}  // namespace longhaul
