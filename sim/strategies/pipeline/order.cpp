#include "sim/strategies/pipeline/order.h"

#include <algorithm>
#include <numeric>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

void link_slices(const PipelineStream& stream, PipelineOrder& order) {
  std::int32_t chunk = stream.first_chunk;
  for (const std::int32_t slices : stream.slices) {
    LH_ASSERT(slices >= 1, "a sequence of {} slices", slices);
    for (std::int32_t slice = 0; slice < slices; ++slice, ++chunk) {
      order.previous_slice.push_back(slice > 0 ? chunk - 1 : -1);
      order.next_slice.push_back(slice + 1 < slices ? chunk + 1 : -1);
    }
  }
}

// Warm-up, pairs, cool-down of one stream on one stage.
void append_stage(std::int32_t stages, std::int32_t stage, const PipelineStream& stream,
                  const std::vector<std::int32_t>& backward, std::vector<PipelineOp>& ops) {
  const std::int32_t chunks = stream.chunks();
  const std::int32_t warm_up = warm_up_forwards(stages, stage, chunks, stream.n_split());
  std::int32_t forwards = 0;
  for (; forwards < warm_up; ++forwards) ops.push_back({PipelinePass::kForward, stream.first_chunk + forwards});
  for (const std::int32_t chunk : backward) {
    if (forwards < chunks) ops.push_back({PipelinePass::kForward, stream.first_chunk + forwards++});
    ops.push_back({PipelinePass::kBackward, chunk});
  }
}

}  // namespace

std::int32_t PipelineStream::chunks() const { return std::accumulate(slices.begin(), slices.end(), 0); }

std::int32_t PipelineStream::n_split() const {
  return slices.empty() ? 0 : *std::max_element(slices.begin(), slices.end());
}

std::int32_t warm_up_forwards(std::int32_t stages, std::int32_t stage, std::int32_t chunks, std::int32_t n_split) {
  LH_ASSERT(stage >= 0 && stage < stages && n_split >= 1, "stage {} of {}, N_split {}", stage, stages, n_split);
  return std::min(chunks, stages - stage - 2 + n_split);
}

std::vector<std::int32_t> backward_order(const PipelineStream& stream) {
  std::vector<std::int32_t> order;
  order.reserve(static_cast<std::size_t>(stream.chunks()));
  std::int32_t first = stream.first_chunk;
  for (const std::int32_t slices : stream.slices) {
    for (std::int32_t slice = slices - 1; slice >= 0; --slice) order.push_back(first + slice);
    first += slices;
  }
  return order;
}

std::vector<PipelineStream> make_streams(const std::vector<std::vector<std::int32_t>>& slices) {
  std::vector<PipelineStream> streams;
  std::int32_t first = 0;
  for (const std::vector<std::int32_t>& counts : slices) {
    streams.push_back({first, counts});
    first += streams.back().chunks();
  }
  return streams;
}

PipelineOrder sliced_1f1b_order(std::int32_t stages, const std::vector<PipelineStream>& streams) {
  LH_ASSERT(stages >= 1 && !streams.empty(), "{} stages, {} streams", stages, streams.size());
  PipelineOrder order;
  order.stages.resize(static_cast<std::size_t>(stages));
  for (const PipelineStream& stream : streams) {
    LH_ASSERT(stream.first_chunk == order.chunks, "stream starts at chunk {}, not at {}", stream.first_chunk,
              order.chunks);
    LH_ASSERT(!stream.slices.empty(), "a stream without sequences at chunk {}", stream.first_chunk);
    link_slices(stream, order);
    const std::vector<std::int32_t> backward = backward_order(stream);
    for (std::int32_t stage = 0; stage < stages; ++stage) {
      append_stage(stages, stage, stream, backward, order.stages[static_cast<std::size_t>(stage)]);
    }
    order.chunks += stream.chunks();
  }
  return order;
}

PipelineOrder one_f_one_b_order(std::int32_t stages, std::int32_t microbatches) {
  return seq1f1b_order(stages, microbatches, 1);
}

PipelineOrder seq1f1b_order(std::int32_t stages, std::int32_t microbatches, std::int32_t slices) {
  LH_ASSERT(microbatches >= 1 && slices >= 1, "{} micro-batches of {} slices", microbatches, slices);
  const std::vector<std::int32_t> counts(static_cast<std::size_t>(microbatches), slices);
  return sliced_1f1b_order(stages, make_streams({counts}));
}

std::vector<std::int32_t> peak_live_chunks(const PipelineOrder& order) {
  std::vector<std::int32_t> peaks;
  for (const std::vector<PipelineOp>& ops : order.stages) {
    std::int32_t live = 0;
    std::int32_t peak = 0;
    for (const PipelineOp& op : ops) {
      live += op.pass == PipelinePass::kForward ? 1 : -1;
      peak = std::max(peak, live);
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace longhaul
