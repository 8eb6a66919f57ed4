#include "sim/strategies/pipeline/replica_plan.h"

#include <algorithm>
#include <map>

#include "sim/core/invariant.h"
#include "sim/strategies/pipeline/alone.h"

namespace longhaul {
namespace {

// Slice numbers of every document of one sequence, whose slot 0 is chunk `first`.
void number_slices(SlotSequence& sequence, std::int32_t first) {
  struct Seen {
    std::int32_t slices = 0;
    std::int32_t first_chunk = 0;
  };
  std::map<DocumentId, Seen> seen;
  for (std::size_t slot = 0; slot < sequence.size(); ++slot) {
    for (DocumentPiece& piece : sequence[slot].pieces) {
      Seen& document = seen[piece.document];
      if (document.slices == 0) document.first_chunk = first + static_cast<std::int32_t>(slot);
      piece.slice = document.slices++;
      piece.first_chunk = document.first_chunk;
    }
  }
  for (PipelineChunk& chunk : sequence) {
    for (DocumentPiece& piece : chunk.pieces) piece.slices = seen[piece.document].slices;
  }
}

Time modelled_makespan(const ReplicaPlan& replica, const std::vector<std::int64_t>& stage_layers,
                       const StageCost& cost) {
  PipelineTimes times;
  const double slowest = static_cast<double>(*std::max_element(stage_layers.begin(), stage_layers.end()));
  for (const std::int64_t layers : stage_layers) {
    const double share = static_cast<double>(layers) / slowest;
    for (const PipelineChunk& chunk : replica.chunks) {
      const double forward = cost.chunk_forward(chunk);
      times.forward.push_back(Time::from_seconds(share * forward));
      times.backward.push_back(Time::from_seconds(share * (chunk.seconds - forward)));
    }
  }
  return pipeline_makespan(replica.order, times);
}

}  // namespace

ReplicaPlan assemble_replica(std::vector<std::vector<SlotSequence>> streams, const PipelineLayout& layout,
                             const std::vector<std::int64_t>& stage_layers, const StageCost& cost) {
  ReplicaPlan replica;
  for (std::vector<SlotSequence>& sequences : streams) {
    PipelineStream stream{static_cast<std::int32_t>(replica.chunks.size()), {}};
    for (SlotSequence& sequence : sequences) {
      number_slices(sequence, static_cast<std::int32_t>(replica.chunks.size()));
      stream.slices.push_back(static_cast<std::int32_t>(sequence.size()));
      for (PipelineChunk& chunk : sequence) {
        finish_chunk(chunk, layout.sp);
        chunk.seconds = cost.chunk(chunk);
        replica.chunks.push_back(std::move(chunk));
      }
    }
    replica.streams.push_back(std::move(stream));
  }
  replica.order = sliced_1f1b_order(layout.pp, replica.streams);
  replica.modelled_seconds = modelled_makespan(replica, stage_layers, cost).seconds();
  return replica;
}

}  // namespace longhaul
