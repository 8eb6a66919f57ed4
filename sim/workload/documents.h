// Where the documents of a study come from, and how they are packed into sequences.
//
// Sampled documents fill a sequence one after another; the one that does not fit is cut at `context_tokens` and its
// rest is dropped (flashcp.md 1.8). Explicit sequences stand as given. Limits keep every sum of tokens and of pairs
// within 64 bits: context up to 2^27 tokens, 2^32 tokens a step, 2^62 pairs a step.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/error.h"
#include "sim/workload/batch.h"
#include "sim/workload/lengths.h"

namespace longhaul {

constexpr std::int64_t kMaxContextTokens = std::int64_t{1} << 27;
constexpr std::int64_t kMaxStepTokens = std::int64_t{1} << 32;
constexpr std::int64_t kMaxSequences = std::int64_t{1} << 20;

// The `documents` object of a study, read. Exactly one of `lengths`, `explicit_sequences`, `file_lengths` is set.
struct DocumentSource {
  std::optional<LengthTable> lengths;
  std::vector<std::vector<std::int64_t>> explicit_sequences;
  std::vector<std::int64_t> file_lengths;
  std::int64_t context_tokens = 0;  // explicit: the longest sequence unless given
  std::int64_t sequences = 0;       // per step
  std::int64_t seed = 1;
  std::int64_t steps = 1;  // more than one only with `lengths`
};

// Keys of the `documents` object, sorted.
const std::vector<std::string>& documents_keys();

// The `documents` object at `path` of `file`. `objective` enters the limit on pairs.
std::optional<DocumentSource> read_documents(const nlohmann::ordered_json& value, const std::string& file,
                                             const std::string& path, const Objective& objective, Errors& errors);

// The batch of step `step`, 0 <= step < source.steps. Step k of N draws from the stream "documents/k", so a longer run
// begins with the batches of a shorter one.
Batch make_batch(const DocumentSource& source, const Objective& objective, std::int64_t step);

// As make_batch does for each kind; inputs within the limits above.
Batch sampled_batch(const LengthTable& lengths, const Objective& objective, std::int64_t context_tokens,
                    std::int64_t sequences, Rng& rng);
Batch packed_batch(const std::vector<std::int64_t>& lengths, const Objective& objective, std::int64_t context_tokens);
Batch explicit_batch(const std::vector<std::vector<std::int64_t>>& sequences, const Objective& objective);

}  // namespace longhaul
