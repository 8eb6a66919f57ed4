// Small training steps of zigzag-cp for tests.
#pragma once

#include <memory>
#include <vector>

#include "sim/strategies/families.h"

namespace longhaul {

struct RingCase {
  std::vector<std::vector<std::int64_t>> sequences;  // tokens of each document
  int cp = 1;
  int dp = 1;
  int zero_stage = 0;
  Recompute recompute = Recompute::kNone;
  std::int64_t micro_batch_sequences = 1;
  std::int64_t q_heads = 4;
  std::int64_t kv_heads = 2;
  std::int64_t layers = 2;
};

inline ModelShape ring_model(const RingCase& of) {
  ModelShape model;
  model.name = "tiny";
  model.hidden = 12;
  model.ffn = 20;
  model.q_heads = of.q_heads;
  model.kv_heads = of.kv_heads;
  model.head_dim = 4;
  model.layers = of.layers;
  model.vocab = 13;
  return model;
}

inline std::shared_ptr<const Batch> ring_batch(const RingCase& of) {
  auto batch = std::make_shared<Batch>();
  for (const std::vector<std::int64_t>& documents : of.sequences) {
    Sequence sequence;
    for (const std::int64_t tokens : documents) {
      sequence.documents.push_back(static_cast<DocumentId>(batch->documents.size()));
      sequence.tokens += tokens;
      batch->documents.push_back(tokens);
    }
    batch->context_tokens = std::max(batch->context_tokens, sequence.tokens);
    batch->sequences.push_back(std::move(sequence));
  }
  return batch;
}

inline StrategyRequest ring_request(const RingCase& of) {
  StrategyRequest request;
  request.batch = ring_batch(of);
  request.model = ring_model(of);
  request.ranks = of.cp * of.dp;
  request.training.zero_stage = of.zero_stage;
  request.training.recompute = of.recompute;
  request.training.micro_batch_sequences = of.micro_batch_sequences;
  request.degrees.cp = of.cp;
  request.degrees.dp = of.dp;
  return request;
}

inline Planned plan_zigzag_step(const RingCase& of) {
  std::vector<Strategy> list;
  add_ring_strategies(list);
  return list.front().plan(ring_request(of));
}

}  // namespace longhaul
