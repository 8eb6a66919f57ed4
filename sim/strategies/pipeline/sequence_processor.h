// DPP's sequence processor: documents into equal-time slices and buckets of short documents (dpp.md 3, Alg. 1).
//
// A *mesh* cuts the longest document into K slices of equal modelled time. As slice j of any long document covers the
// same cell [x_{j-1}, x_j), one mesh serves all: a document of l tokens, x_{i-1} < l <= x_i, gets i slices; documents
// of one slice are "short". The last slice of a long document is its tail, unless it fills its cell.
//
// Times here are StageCost::piece sums: the fixed cost of a chunk is the same for all and left out.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/strategies/pipeline/cost.h"

namespace longhaul {

struct SliceMesh {
  std::vector<std::int64_t> cuts;  // x_0 = 0 .. x_K = tokens of the longest document, strictly rising
  double cell_seconds = 0;         // T_t: of the slowest cell (rounding makes them differ by at most sp tokens)

  std::int32_t slices() const { return static_cast<std::int32_t>(cuts.size()) - 1; }
  std::int32_t slices_of(std::int64_t tokens) const;  // i with x_{i-1} < tokens <= x_i
  std::int64_t most_tokens() const;                   // of a cell: the first but for rounding
};

// x_j = (-b + sqrt(b^2 + 4 a (j/K) W)) / 2a with W = a Smax^2 + b Smax (dpp.md 3), rounded to the nearest multiple of
// `sp`; the last is `longest` itself. nullopt if the rounding leaves a cell empty: K is too fine.
std::optional<SliceMesh> make_mesh(const StageCost& cost, std::int64_t longest, std::int32_t slices, std::int32_t sp);

// What a chunk besides the full cells holds: a tail with short documents ("hybrid"), or short documents ("batched").
struct ChunkBucket {
  std::int32_t owner = -1;           // document of the tail; -1 if none
  std::vector<std::int32_t> shorts;  // in the order in which they were placed
  std::int64_t tokens = 0;
  double seconds = 0;
};

struct ProcessedDocuments {
  std::vector<std::int32_t> slices;       // [document]
  std::vector<std::int32_t> tail_bucket;  // [document] its tail's bucket; -1 for shorts and tails that fill their cell
  std::vector<ChunkBucket> buckets;       // tails first, by document
  double target_seconds = 0;              // T_t after loosening
};

// Algorithm 1. Documents are indices into `lengths`; none is longer than the mesh. `token_cap` (T_m) is at least the
// largest cell. The guard of dpp.md 3 holds: T_t is loosened only by buckets that the document fits by tokens.
ProcessedDocuments process_documents(const std::vector<std::int64_t>& lengths, const StageCost& cost,
                                     const SliceMesh& mesh, std::int64_t token_cap);

}  // namespace longhaul
