// What a pipeline strategy decides about one batch: which tokens stand in which chunk, in which stream, in which order.
//
// N = dp x pp x sp GPUs: dp replicas, each a pipeline of pp stages, each stage an Ulysses group of sp GPUs (d_p and d_s
// of dpp.md 1). A *chunk* is what one pipeline slot holds: pieces of documents, whole ones or slices; attention is
// block-diagonal per document, and a slice also attends to the document's earlier slices, which stand in the chunks
// before it. A chunk's rows are its tokens padded at the chunk's end to a multiple of sp; no token sees padding.
//
// Invariants: every token of the batch stands in exactly one piece; the slices of a document stand in consecutive
// chunks of one stream, in order; no chunk is empty; a document is in one replica.
#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "sim/strategies/pipeline/order.h"
#include "sim/workload/batch.h"

namespace longhaul {

struct PipelineLayout {
  std::int32_t dp = 1;
  std::int32_t pp = 2;  // d_p
  std::int32_t sp = 1;  // d_s
};

// Tokens [first, first + tokens) of a document; `first` is also the context that it attends to besides itself (C_k).
struct DocumentPiece {
  DocumentId document = 0;
  std::int64_t first = 0;
  std::int64_t tokens = 0;
  std::int32_t slice = 0;  // this is slice `slice` of `slices`
  std::int32_t slices = 1;
  std::int32_t first_chunk = 0;  // chunk of slice 0; slice j stands in chunk first_chunk + j
  std::int64_t end() const { return first + tokens; }
};

// dpp.md 2.1, by content: kWhole whole documents only ("batched"); kSplit slices only; kHybrid slices and whole ones.
enum class ChunkKind : std::uint8_t { kWhole, kSplit, kHybrid };

struct PipelineChunk {
  ChunkKind kind = ChunkKind::kWhole;
  std::vector<DocumentPiece> pieces;  // in row order; DPP: the slice of the long document first
  std::int64_t tokens = 0;            // sum over the pieces
  std::int64_t rows = 0;              // tokens rounded up to a multiple of sp
  double seconds = 0;  // modelled forward + backward (+ recompute) on the slowest stage; 0 if not modelled

  std::int64_t pairs() const;  // unmasked (query, key) pairs per layer and head: sum of tokens*first + t(t+1)/2
};

struct ReplicaPlan {
  std::vector<PipelineChunk> chunks;    // of all streams, in stream order
  std::vector<PipelineStream> streams;  // sequential 1F1B pipelines
  PipelineOrder order;                  // lists of every stage
  // DPP only, otherwise 0 / true.
  std::int32_t mesh_slices = 0;  // K
  std::int64_t token_cap = 0;    // T_m of Alg. 1
  double modelled_seconds = 0;   // makespan of the order alone with the modelled chunk times, no P2P
  bool window_fits = true;       // false: no grouping of any K keeps the window within the limit
};

struct PipelinePlan {
  PipelineLayout layout;
  std::vector<std::int64_t> stage_layers;  // [stage]; layers that pp does not divide: the first stages hold one more
  std::vector<ReplicaPlan> replicas;       // [dp]
};

// Why a strategy cannot run the batch ("not_applicable" in results).
template <class T>
using Applicable = tl::expected<T, std::string>;

// Layers of each stage: layers / stages, the first layers % stages hold one more.
std::vector<std::int64_t> stage_layers(std::int64_t layers, std::int32_t stages);

// The conditions that all pipelines share: causal objective, at least 2 stages, no more stages than layers. Empty if
// they hold.
std::string pipeline_not_applicable(const Batch& batch, std::int64_t layers, const PipelineLayout& layout);

// Fills tokens, rows and kind from the pieces.
void finish_chunk(PipelineChunk& chunk, std::int32_t sp);

// Aborts (LH_ASSERT) unless the invariants above hold for `plan` of `batch`.
void check_plan(const PipelinePlan& plan, const Batch& batch);

}  // namespace longhaul
