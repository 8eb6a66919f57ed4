// The undistributed reference: one training step in double precision, computed from the documents and the model, never
// from a schedule.
//
// Layer (sim/workload/model.h): x1 = x + attention(rope(norm(x) Wqkv)) Wo; x2 = x1 + down(silu(gate) * up)(norm(x1)).
// Causal LM has one row a token. Block diffusion has two: the noisy copy (corrupted tokens read the mask id) and the
// clean one; the mask is csbp.md 2.1 (noisy to noisy: same block; noisy to clean: earlier blocks; clean to clean:
// blocks up to its own); head and loss see noisy rows. Loss: sum over counted tokens / counted tokens (0 if there are
// none).
#pragma once

#include <cstdint>
#include <vector>

#include "sim/schedule/tensor.h"
#include "validate/cpu/storage.h"
#include "validate/cpu/wide_product.h"

namespace longhaul {

// Rows stand document by document; in a block-diffusion document the noisy rows come first.
struct ReferenceLayer {
  Matrix o;                       // rows x q_width
  Matrix q_grad, k_grad, v_grad;  // gradient of the QKV projection's output (after RoPE backward)
};

struct Reference {
  double loss = 0;
  std::vector<double> embedding_grads;           // by element of the unit
  std::vector<std::vector<double>> layer_grads;  // by layer, element
  std::vector<double> head_grads;
  std::vector<ReferenceLayer> layers;
  std::vector<std::int64_t> document_row;  // first row of each document
  std::int64_t rows = 0;

  std::int64_t row(const Batch& batch, DocumentId document, TokenView view, std::int64_t position) const;
};

// All parameters of a model, by unit; what the reference differentiates with respect to.
struct ParameterValues {
  std::vector<double> embedding;
  std::vector<std::vector<double>> layers;
  std::vector<double> head;
};
ParameterValues make_parameters(const ModelShape& model, std::uint64_t seed);

// `threads` 0: one thread, the same bits on every machine; above: for large steps, on that many threads, with last bits
// that depend on the CPU (wide_product.h) and not on their number. With threads, `elsewhere` is offered each product
// first.
Reference reference_step(const ModelShape& model, const Batch& batch, const ParameterValues& parameters,
                         int threads = 0, const ProductElsewhere& elsewhere = {});
// The loss alone (forward).
double reference_loss(const ModelShape& model, const Batch& batch, const ParameterValues& parameters);

// Multiply-adds x 2 of one reference step: forward and backward, unmasked pairs only.
double reference_flops(const ModelShape& model, const Batch& batch);

}  // namespace longhaul
