// Who runs what when in a pipeline: one strict list of operations a stage.
//
// A *stream* is the row of slots ("chunks") that passes through a pipeline. Consecutive slots may be the slices of one
// sequence: slice i attends to slices 0..i-1, so forwards go up the slices and backwards go down (dpp.md 4.2). A
// replica may run several streams one after another; chunks are numbered through all of them.
//
// Modelled here: order and dependencies. Not here: durations (alone.h), tensors, communication.
// Invariants: every chunk stands exactly once as forward and once as backward in the list of every stage.
#pragma once

#include <cstdint>
#include <vector>

namespace longhaul {

enum class PipelinePass : std::uint8_t { kForward, kBackward };  // kBackward: input and weight gradients together

struct PipelineOp {
  PipelinePass pass = PipelinePass::kForward;
  std::int32_t chunk = 0;  // index into the replica's chunks
  bool operator==(const PipelineOp&) const = default;
};

// One sequential 1F1B pipeline: chunks [first_chunk, first_chunk + chunks()).
struct PipelineStream {
  std::int32_t first_chunk = 0;
  std::vector<std::int32_t> slices;  // slots of each sequence, in stream order, each at least 1

  std::int32_t chunks() const;   // sum of slices
  std::int32_t n_split() const;  // most slices of one sequence: N_split of dpp.md Eq. 7
};

struct PipelineOrder {
  std::int32_t chunks = 0;
  std::vector<std::vector<PipelineOp>> stages;  // [stage], stage 0 holds the embedding
  // Dependencies inside a stage besides the list order, by chunk; -1 for none. F(r,k) needs F(r,previous_slice[k]),
  // B(r,k) needs B(r,next_slice[k]). Across stages: F(r,k) needs F(r-1,k); B(r,k) needs B(r+1,k), on the last stage
  // F(r,k).
  std::vector<std::int32_t> previous_slice;
  std::vector<std::int32_t> next_slice;
};

// Forwards that stage `stage` of `stages` issues before its first backward in a stream of `chunks` slots:
// w_r = min(n, d_p - r - 2 + N_split) (dpp.md 4.2; with N_split 1 it is 1F1B's p - r - 1).
std::int32_t warm_up_forwards(std::int32_t stages, std::int32_t stage, std::int32_t chunks, std::int32_t n_split);

// The chunks of `stream` in backward order: sequences first in first out, the slices of each reversed (dpp.md 4.2:
// f2b[u+i] = u+c-1-i for a sequence in slots u..u+c-1).
std::vector<std::int32_t> backward_order(const PipelineStream& stream);

// Consecutive streams over these slice counts, first_chunk filled in.
std::vector<PipelineStream> make_streams(const std::vector<std::vector<std::int32_t>>& slices);

// DPP's rule (dpp.md 4.2) for streams run one after another: w_r forwards, then (F, B) pairs, then the remaining
// backwards. Sequences stay in the order given; DPP's planner gives them in descending slice count.
// `streams` are consecutive from chunk 0 and not empty; stages at least 1.
PipelineOrder sliced_1f1b_order(std::int32_t stages, const std::vector<PipelineStream>& streams);

// Plain 1F1B (dpp.md 7.1): `microbatches` sequences of one slice.
PipelineOrder one_f_one_b_order(std::int32_t stages, std::int32_t microbatches);

// Seq1F1B (dpp.md 7.1, 4.2 with constant s): every micro-batch in `slices` slices.
PipelineOrder seq1f1b_order(std::int32_t stages, std::int32_t microbatches, std::int32_t slices);

// Most chunks alive at once on each stage: a chunk lives from the start of its forward to the end of its backward.
std::vector<std::int32_t> peak_live_chunks(const PipelineOrder& order);

}  // namespace longhaul
