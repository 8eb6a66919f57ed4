#include "sim/strategies/pipeline/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/core/integers.h"
#include "sim/core/invariant.h"

namespace longhaul {
namespace {

// Where the next token of a document must stand.
struct DocumentProgress {
  std::int64_t tokens = 0;
  std::int32_t slices = 0;
  std::int32_t first_chunk = 0;
  std::size_t replica = 0;
};

void check_piece(const DocumentPiece& piece, std::size_t replica, std::int32_t chunk, DocumentProgress& progress) {
  if (piece.slice == 0) {
    progress.replica = replica;
    progress.first_chunk = chunk;
  }
  LH_ASSERT(piece.tokens >= 1 && piece.first == progress.tokens && piece.slice == progress.slices,
            "document {}: piece at {} of {} tokens, slice {}, after {} tokens in {} slices", piece.document,
            piece.first, piece.tokens, piece.slice, progress.tokens, progress.slices);
  LH_ASSERT(progress.replica == replica && piece.first_chunk == progress.first_chunk &&
                piece.first_chunk + piece.slice == chunk,
            "document {}: slice {} in chunk {} of replica {}, slice 0 in chunk {} of replica {}", piece.document,
            piece.slice, chunk, replica, progress.first_chunk, progress.replica);
  LH_ASSERT(piece.slice < piece.slices, "document {}: slice {} of {}", piece.document, piece.slice, piece.slices);
  progress.tokens += piece.tokens;
  ++progress.slices;
}

void check_replica(const ReplicaPlan& replica, std::size_t index, const PipelineLayout& layout,
                   std::vector<DocumentProgress>& documents) {
  const std::vector<PipelineChunk>& chunks = replica.chunks;
  LH_ASSERT(replica.order.chunks == static_cast<std::int32_t>(chunks.size()) &&
                replica.order.stages.size() == static_cast<std::size_t>(layout.pp),
            "order of {} chunks on {} stages for {} chunks on {}", replica.order.chunks, replica.order.stages.size(),
            chunks.size(), layout.pp);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    LH_ASSERT(!chunks[i].pieces.empty(), "chunk {} of replica {} is empty", i, index);
    PipelineChunk again{.kind = {}, .pieces = chunks[i].pieces, .tokens = 0, .rows = 0, .seconds = 0};
    finish_chunk(again, layout.sp);
    LH_ASSERT(again.tokens == chunks[i].tokens && again.rows == chunks[i].rows && again.kind == chunks[i].kind,
              "chunk {} of replica {} is not finished", i, index);
    for (const DocumentPiece& piece : chunks[i].pieces) {
      check_piece(piece, index, static_cast<std::int32_t>(i), documents[static_cast<std::size_t>(piece.document)]);
      // A slice's context stands in the slots that the order makes it wait for.
      LH_ASSERT(piece.slice == 0 || replica.order.previous_slice[i] == static_cast<std::int32_t>(i) - 1,
                "chunk {} of replica {} does not wait for its context", i, index);
    }
  }
}

}  // namespace

std::int64_t PipelineChunk::pairs() const {
  std::int64_t pairs = 0;
  for (const DocumentPiece& piece : pieces) {
    pairs += piece.tokens * piece.first + piece.tokens * (piece.tokens + 1) / 2;
  }
  return pairs;
}

std::vector<std::int64_t> stage_layers(std::int64_t layers, std::int32_t stages) {
  LH_ASSERT(stages >= 1 && layers >= stages, "{} layers on {} stages", layers, stages);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(stages), layers / stages);
  for (std::int64_t stage = 0; stage < layers % stages; ++stage) ++counts[static_cast<std::size_t>(stage)];
  return counts;
}

std::string pipeline_not_applicable(const Batch& batch, std::int64_t layers, const PipelineLayout& layout) {
  if (batch.objective.kind != ObjectiveKind::kCausalLm) return "pipelines here train causal language models only";
  if (layout.pp < 2) return fmt::format("a pipeline needs at least 2 stages, the layout has pp = {}", layout.pp);
  if (layers < layout.pp) return fmt::format("{} layers do not fill pp = {} stages", layers, layout.pp);
  return "";
}

void finish_chunk(PipelineChunk& chunk, std::int32_t sp) {
  LH_ASSERT(sp >= 1, "sp = {}", sp);
  chunk.tokens = 0;
  bool whole = false;
  bool sliced = false;
  for (const DocumentPiece& piece : chunk.pieces) {
    chunk.tokens += piece.tokens;
    (piece.slices > 1 ? sliced : whole) = true;
  }
  chunk.rows = ceil_div(chunk.tokens, sp) * sp;
  chunk.kind = !sliced ? ChunkKind::kWhole : whole ? ChunkKind::kHybrid : ChunkKind::kSplit;
}

void check_plan(const PipelinePlan& plan, const Batch& batch) {
  LH_ASSERT(plan.replicas.size() == static_cast<std::size_t>(plan.layout.dp), "{} replicas for dp = {}",
            plan.replicas.size(), plan.layout.dp);
  std::vector<DocumentProgress> documents(batch.documents.size());
  for (std::size_t i = 0; i < plan.replicas.size(); ++i) check_replica(plan.replicas[i], i, plan.layout, documents);
  for (std::size_t i = 0; i < documents.size(); ++i) {
    LH_ASSERT(documents[i].tokens == batch.documents[i], "document {}: {} of {} tokens planned", i, documents[i].tokens,
              batch.documents[i]);
  }
}

}  // namespace longhaul
