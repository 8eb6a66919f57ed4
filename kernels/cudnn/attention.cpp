#include "kernels/cudnn/attention.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

namespace longhaul {
namespace {

void require(const CudnnAttentionProblem& problem, bool backward) {
  const std::vector<std::string> reasons = refusals(problem, backward);
  if (!reasons.empty()) throw std::invalid_argument(fmt::format("cuDNN attention: {}", fmt::join(reasons, "; ")));
}

AttentionGraphShape shape_of(const CudnnAttentionProblem& problem) {
  AttentionGraphShape shape;
  shape.batch = static_cast<std::int64_t>(problem.sequences.size());
  for (const CudnnSequence& sequence : problem.sequences) {
    shape.max_q = std::max(shape.max_q, sequence.q_count);
    shape.max_k = std::max(shape.max_k, sequence.k_count);
  }
  shape.q_heads = problem.q_heads;
  shape.kv_heads = problem.kv_heads;
  shape.head_dim = problem.head_dim;
  shape.mask = problem.mask;
  shape.ragged = !is_dense(problem.sequences);
  shape.deterministic = problem.deterministic;
  return shape;
}

// The start of each sequence and, last, the end of the last one, in units of `scale` elements a row.
std::vector<std::int64_t> offsets_of(const std::vector<CudnnSequence>& sequences, std::int64_t CudnnSequence::*row,
                                     std::int64_t CudnnSequence::*count, std::int64_t scale) {
  std::vector<std::int64_t> offsets;
  for (const CudnnSequence& sequence : sequences) offsets.push_back(sequence.*row * scale);
  offsets.push_back((sequences.back().*row + sequences.back().*count) * scale);
  return offsets;
}

std::vector<std::int32_t> lengths_of(const std::vector<CudnnSequence>& sequences, std::int64_t CudnnSequence::*count) {
  std::vector<std::int32_t> lengths;
  for (const CudnnSequence& sequence : sequences) lengths.push_back(static_cast<std::int32_t>(sequence.*count));
  return lengths;
}

std::int64_t last_row(const std::vector<CudnnSequence>& sequences, std::int64_t CudnnSequence::*row,
                      std::int64_t CudnnSequence::*count) {
  std::int64_t last = 0;
  for (const CudnnSequence& sequence : sequences) last = std::max(last, sequence.*row + sequence.*count);
  return last;
}

}  // namespace

CudnnBatch::CudnnBatch(const CudnnAttentionProblem& problem, cudaStream_t stream)
    : problem_((require(problem, false), problem)),
      shape_(shape_of(problem)),
      q_rows_(last_row(problem.sequences, &CudnnSequence::q_row, &CudnnSequence::q_count)),
      k_rows_(last_row(problem.sequences, &CudnnSequence::k_row, &CudnnSequence::k_count)),
      q_offsets_(problem.sequences.size() + 1),
      k_offsets_(problem.sequences.size() + 1),
      lse_offsets_(problem.sequences.size() + 1),
      q_lengths_(problem.sequences.size()),
      k_lengths_(problem.sequences.size()) {
  const auto& list = problem_.sequences;
  q_offsets_.upload(
      offsets_of(list, &CudnnSequence::q_row, &CudnnSequence::q_count, problem_.q_heads * problem_.head_dim), stream);
  k_offsets_.upload(
      offsets_of(list, &CudnnSequence::k_row, &CudnnSequence::k_count, problem_.kv_heads * problem_.head_dim), stream);
  lse_offsets_.upload(offsets_of(list, &CudnnSequence::q_row, &CudnnSequence::q_count, problem_.q_heads), stream);
  q_lengths_.upload(lengths_of(list, &CudnnSequence::q_count), stream);
  k_lengths_.upload(lengths_of(list, &CudnnSequence::k_count), stream);
}

CudnnAttention::CudnnAttention() {
  cudnnHandle_t handle = nullptr;
  LH_CUDNN_CHECK(cudnnCreate(&handle));
  handle_.reset(handle);
}

const CudnnAttention::Plan& CudnnAttention::plan_for(const AttentionGraphShape& shape, bool backward) {
  const auto key = std::make_pair(shape, backward);
  const auto known = plans_.find(key);
  if (known != plans_.end()) return known->second;
  CudnnGraph graph;
  const AttentionGraphTensors tensors = backward ? add_backward(graph, shape) : add_forward(graph, shape);
  return plans_.emplace(key, Plan{tensors, graph.build(handle_.get())}).first->second;
}

std::byte* CudnnAttention::scratch(DeviceBuffer<std::byte>& buffer, std::int64_t bytes, cudaStream_t stream) const {
  if (buffer.size() < static_cast<std::size_t>(bytes)) {
    LH_CUDA_CHECK(cudaStreamSynchronize(stream));
    buffer = DeviceBuffer<std::byte>(0);
    buffer = DeviceBuffer<std::byte>(static_cast<std::size_t>(bytes));
  }
  return buffer.data();
}

void CudnnAttention::add_common(const CudnnBatch& batch, const AttentionGraphTensors& tensors, const Inputs& in,
                                const Bf16* o, const float* lse, Pointers& pointers) const {
  const auto& problem = batch.problem_;
  // A dense call has no offsets: its tensors start at the first sequence.
  const CudnnSequence& first = problem.sequences.front();
  const std::int64_t q_row = batch.shape_.ragged ? 0 : first.q_row * problem.q_heads;
  const std::int64_t k_row = batch.shape_.ragged ? 0 : first.k_row * problem.kv_heads;
  pointers[tensors.q] = in.q + q_row * problem.head_dim;
  pointers[tensors.k] = in.k + k_row * problem.head_dim;
  pointers[tensors.v] = in.v + k_row * problem.head_dim;
  pointers[tensors.o] = o + q_row * problem.head_dim;
  pointers[tensors.lse] = lse + q_row;
  if (!batch.shape_.ragged) return;
  pointers[tensors.q_offsets] = batch.q_offsets_.data();
  pointers[tensors.k_offsets] = batch.k_offsets_.data();
  pointers[tensors.lse_offsets] = batch.lse_offsets_.data();
  pointers[tensors.q_lengths] = batch.q_lengths_.data();
  pointers[tensors.k_lengths] = batch.k_lengths_.data();
}

void CudnnAttention::forward(const CudnnBatch& batch, const Inputs& in, Bf16* o, float* lse, cudaStream_t stream) {
  AttentionGraphShape shape = batch.shape_;
  shape.deterministic = false;  // says nothing about a forward call
  const Plan& plan = plan_for(shape, false);
  Pointers pointers;
  add_common(batch, plan.tensors, in, o, lse, pointers);
  LH_CUDNN_CHECK(cudnnSetStream(handle_.get(), stream));
  plan.plan.run(handle_.get(), pointers, scratch(workspace_, plan.plan.workspace_bytes(), stream));
}

void CudnnAttention::backward(const CudnnBatch& batch, const Inputs& in, const Bf16* o, const float* lse,
                              const Bf16* d_o, const Gradients& out, cudaStream_t stream) {
  require(batch.problem_, true);
  const Plan& plan = plan_for(batch.shape_, true);
  const AttentionGraphTensors& tensors = plan.tensors;
  const auto& problem = batch.problem_;
  const CudnnSequence& first = problem.sequences.front();
  const std::int64_t q_row = batch.shape_.ragged ? 0 : first.q_row * problem.q_heads * problem.head_dim;
  const std::int64_t k_row = batch.shape_.ragged ? 0 : first.k_row * problem.kv_heads * problem.head_dim;
  Pointers pointers;
  add_common(batch, tensors, in, o, lse, pointers);
  pointers[tensors.d_o] = d_o + q_row;
  pointers[tensors.d_q] = out.q + q_row;
  pointers[tensors.d_k] = out.k + k_row;
  pointers[tensors.d_v] = out.v + k_row;
  const std::int64_t q_elements = batch.q_rows_ * problem.q_heads;
  const std::int64_t k_elements = batch.k_rows_ * problem.q_heads * problem.head_dim;
  pointers[tensors.row_sums] = scratch(row_sums_, q_elements * 4, stream);
  if (tensors.d_q_sum != 0) {
    pointers[tensors.d_q_sum] = scratch(d_q_sum_, q_elements * problem.head_dim * 4, stream);
  }
  if (tensors.d_k_heads != 0) {
    pointers[tensors.d_k_heads] = scratch(d_k_heads_, k_elements * 2, stream);
    pointers[tensors.d_v_heads] = scratch(d_v_heads_, k_elements * 2, stream);
  }
  LH_CUDNN_CHECK(cudnnSetStream(handle_.get(), stream));
  plan.plan.run(handle_.get(), pointers, scratch(workspace_, plan.plan.workspace_bytes(), stream));
}

}  // namespace longhaul
