// Where the documents of a study come from, and how they are packed into sequences.
//
// Sampled documents fill a sequence one after another; the one that does not fit is cut at `context_tokens` and its
// rest is dropped (flashcp.md 1.8). Explicit sequences stand as given. The limits below keep document ids within 31
// bits and pairs within 2 x 2^27 x 2^30 = 2^58.
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
constexpr std::int64_t kMaxStepTokens = std::int64_t{1} << 30;
constexpr std::int64_t kMaxSequences = std::int64_t{1} << 20;
constexpr std::int64_t kMaxSteps = 10'000;

// The `documents` object of a study, read. Exactly one of `lengths`, `explicit_sequences`, `file_lengths` is set.
struct DocumentSource {
  std::optional<LengthTable> lengths;
  bool shipped_lengths = false;  // `lengths` was given by a shipped name
  std::vector<std::vector<std::int64_t>> explicit_sequences;
  std::vector<std::int64_t> file_lengths;
  std::int64_t context_tokens = 0;  // explicit: the longest sequence unless given
  std::int64_t sequences = 0;       // per step
  std::int64_t seed = 1;
  std::int64_t steps = 1;  // more than one only with `lengths`
};

// Keys of the `documents` object, sorted.
const std::vector<std::string>& documents_keys();

// The `documents` object at `path` of `file`. Faults of the files that it names are reported under their own names.
std::optional<DocumentSource> read_documents(const nlohmann::ordered_json& value, const std::string& file,
                                             const std::string& path, Errors& errors);

// The lengths in a file: one a line (empty lines and # comments are skipped), or a JSON list. At least one.
std::vector<std::int64_t> read_document_lengths(const std::string& file, Errors& errors);

// The batch of step `step`, 0 <= step < source.steps. Step k of N draws from the stream "documents/k", so a longer run
// begins with the batches of a shorter one.
Batch make_batch(const DocumentSource& source, const Objective& objective, std::int64_t step);

// As make_batch does for each kind; inputs within the limits above. `packed_batch` takes the documents in order until
// they or the `sequences` end; its last sequence may be shorter than the context.
Batch sampled_batch(const LengthTable& lengths, const Objective& objective, std::int64_t context_tokens,
                    std::int64_t sequences, Rng& rng);
Batch packed_batch(const std::vector<std::int64_t>& lengths, const Objective& objective, std::int64_t context_tokens,
                   std::int64_t sequences);
Batch explicit_batch(const std::vector<std::vector<std::int64_t>>& sequences, const Objective& objective);

}  // namespace longhaul
