#include "sim/strategies/pipeline/dpp_candidate.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "sim/core/integers.h"
#include "sim/core/invariant.h"
#include "sim/strategies/pipeline/grouping.h"

namespace longhaul {
namespace {

// Long documents and batched chunks as sequences, in descending slice count; ties: more time, then the order in which
// the processor made them.
std::vector<CandidateSequence> list_sequences(const ReplicaDocuments& documents, const DppCandidate& candidate,
                                              const StageCost& cost) {
  const ProcessedDocuments& processed = candidate.processed;
  std::vector<CandidateSequence> sequences;
  for (std::size_t i = 0; i < documents.tokens.size(); ++i) {
    const std::int32_t slices = processed.slices[i];
    if (slices == 1) continue;
    const std::int32_t bucket = processed.tail_bucket[i];
    double seconds = slices * cost.fixed();
    if (bucket >= 0) {
      seconds += cost.piece(0, candidate.mesh.cuts[static_cast<std::size_t>(slices) - 1]) +
                 processed.buckets[static_cast<std::size_t>(bucket)].seconds;
    } else {
      seconds += cost.piece(0, documents.tokens[i]);
    }
    sequences.push_back({slices, static_cast<std::int32_t>(i), bucket, seconds});
  }
  for (std::size_t i = 0; i < processed.buckets.size(); ++i) {
    const ChunkBucket& bucket = processed.buckets[i];
    if (bucket.owner < 0) sequences.push_back({1, -1, static_cast<std::int32_t>(i), bucket.seconds + cost.fixed()});
  }
  std::stable_sort(sequences.begin(), sequences.end(), [](const CandidateSequence& a, const CandidateSequence& b) {
    return a.slices != b.slices ? a.slices > b.slices : a.seconds > b.seconds;
  });
  return sequences;
}

// Rows of each chunk of `sequence`, padded.
void append_rows(const CandidateSequence& sequence, const DppCandidate& candidate, std::int32_t sp,
                 std::vector<std::int64_t>& rows) {
  const std::vector<std::int64_t>& cuts = candidate.mesh.cuts;
  for (std::int32_t slice = 0; slice < sequence.slices; ++slice) {
    const auto at = static_cast<std::size_t>(slice);
    const bool bucket = slice + 1 == sequence.slices && sequence.bucket >= 0;
    const std::int64_t tokens = bucket ? candidate.processed.buckets[static_cast<std::size_t>(sequence.bucket)].tokens
                                       : cuts[at + 1] - cuts[at];
    rows.push_back(ceil_div(tokens, sp) * sp);
  }
}

// Sequences of equal slice count: [first, last) of the descending list.
struct SliceClass {
  std::size_t first = 0;
  std::size_t last = 0;
  double seconds = 0;
  std::int64_t chunks = 0;
};

std::vector<SliceClass> class_sequences(const std::vector<CandidateSequence>& sequences) {
  std::vector<SliceClass> classes;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (i == 0 || sequences[i].slices != sequences[i - 1].slices) classes.push_back({i, i, 0, 0});
    classes.back().last = i + 1;
    classes.back().seconds += sequences[i].seconds;
    classes.back().chunks += sequences[i].slices;
  }
  std::reverse(classes.begin(), classes.end());  // ascending slice count, as in Eq. 14
  return classes;
}

// delta of Eq. 13 for sequences [first, last), or infinity if their window does not fit.
class PipelineCost {
 public:
  PipelineCost(const DppCandidate& candidate, const std::vector<CandidateSequence>& sequences,
               const std::vector<SliceClass>& classes, const PipelineLayout& layout, std::int64_t window_tokens)
      : candidate_(candidate), sequences_(sequences), classes_(classes), layout_(layout), window_(window_tokens) {}

  double operator()(ClassRange range) const {
    double seconds = 0;
    std::int64_t chunks = 0;
    for (std::int32_t i = range.first; i <= range.last; ++i) {
      seconds += classes_[static_cast<std::size_t>(i)].seconds;
      chunks += classes_[static_cast<std::size_t>(i)].chunks;
    }
    if (window_ > 0 && window_rows(range) > window_) return std::numeric_limits<double>::infinity();
    return (layout_.pp - 1) * (seconds / static_cast<double>(chunks));
  }

 private:
  std::int64_t window_rows(ClassRange range) const {
    PipelineStream stream;
    std::vector<std::int64_t> rows;
    const std::size_t last = classes_[static_cast<std::size_t>(range.first)].last;
    for (std::size_t i = classes_[static_cast<std::size_t>(range.last)].first; i < last; ++i) {
      stream.slices.push_back(sequences_[i].slices);
      append_rows(sequences_[i], candidate_, layout_.sp, rows);
    }
    return peak_live_rows(layout_.pp, stream, rows);
  }

  const DppCandidate& candidate_;
  const std::vector<CandidateSequence>& sequences_;
  const std::vector<SliceClass>& classes_;
  const PipelineLayout& layout_;
  std::int64_t window_;
};

void group(DppCandidate& candidate, const std::vector<CandidateSequence>& sequences, const PipelineLayout& layout,
           std::int64_t window_tokens) {
  const std::vector<SliceClass> classes = class_sequences(sequences);
  const auto last = static_cast<std::int32_t>(classes.size()) - 1;
  const PipelineCost cost(candidate, sequences, classes, layout, window_tokens);
  // One pipeline has the least delta of all: the mean over all chunks is not above the sum of the parts' means. Only
  // its window can rule it out.
  Grouping grouping{{{0, last}}, cost({0, last})};
  if (grouping.seconds == std::numeric_limits<double>::infinity()) {
    grouping = group_classes(last + 1, cost);
  }
  if (grouping.pipelines.empty()) {
    candidate.window_fits = false;
    grouping.pipelines = {{0, last}};
  }
  for (auto range = grouping.pipelines.rbegin(); range != grouping.pipelines.rend(); ++range) {
    const auto from = static_cast<std::ptrdiff_t>(classes[static_cast<std::size_t>(range->last)].first);
    const auto to = static_cast<std::ptrdiff_t>(classes[static_cast<std::size_t>(range->first)].last);
    candidate.streams.emplace_back(sequences.begin() + from, sequences.begin() + to);
  }
}

PipelineChunk bucket_chunk(const ChunkBucket& bucket, const DppCandidate& candidate,
                           const ReplicaDocuments& documents) {
  PipelineChunk chunk;
  if (bucket.owner >= 0) {
    const auto owner = static_cast<std::size_t>(bucket.owner);
    const std::int64_t first = candidate.mesh.cuts[static_cast<std::size_t>(candidate.processed.slices[owner]) - 1];
    chunk.pieces.push_back(
        {.document = documents.ids[owner], .first = first, .tokens = documents.tokens[owner] - first});
  }
  for (const std::int32_t document : bucket.shorts) {
    const auto at = static_cast<std::size_t>(document);
    chunk.pieces.push_back({.document = documents.ids[at], .first = 0, .tokens = documents.tokens[at]});
  }
  return chunk;
}

}  // namespace

DppCandidate make_candidate(const ReplicaDocuments& documents, const StageCost& cost, const PipelineLayout& layout,
                            const SliceMesh& mesh, std::int64_t token_cap, std::int64_t window_tokens) {
  DppCandidate candidate;
  candidate.processed = process_documents(documents.tokens, cost, mesh, token_cap);
  candidate.mesh = mesh;
  const std::vector<CandidateSequence> sequences = list_sequences(documents, candidate, cost);
  for (const CandidateSequence& sequence : sequences) candidate.seconds += sequence.seconds;
  for (const ChunkBucket& bucket : candidate.processed.buckets) {
    candidate.longest_seconds = std::max(candidate.longest_seconds, bucket.seconds + cost.fixed());
  }
  group(candidate, sequences, layout, window_tokens);
  return candidate;
}

std::vector<std::vector<SlotSequence>> candidate_slots(const DppCandidate& candidate,
                                                       const ReplicaDocuments& documents) {
  std::vector<std::vector<SlotSequence>> streams;
  for (const std::vector<CandidateSequence>& sequences : candidate.streams) {
    std::vector<SlotSequence>& slots = streams.emplace_back();
    for (const CandidateSequence& sequence : sequences) {
      SlotSequence& chunks = slots.emplace_back();
      // Cells before the tail; all of them if the tail fills its cell. A batched chunk has none.
      const std::int32_t cells = sequence.bucket >= 0 ? sequence.slices - 1 : sequence.slices;
      for (std::int32_t slice = 0; slice < cells; ++slice) {
        const auto at = static_cast<std::size_t>(slice);
        const std::int64_t first = candidate.mesh.cuts[at];
        PipelineChunk& chunk = chunks.emplace_back();
        chunk.pieces.push_back({.document = documents.ids[static_cast<std::size_t>(sequence.document)],
                                .first = first,
                                .tokens = candidate.mesh.cuts[at + 1] - first});
      }
      if (sequence.bucket >= 0) {
        chunks.push_back(
            bucket_chunk(candidate.processed.buckets[static_cast<std::size_t>(sequence.bucket)], candidate, documents));
      }
    }
  }
  return streams;
}

}  // namespace longhaul
