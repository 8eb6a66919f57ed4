#include "sim/study/reduce.h"

#include <fmt/format.h>

#include <algorithm>

namespace longhaul {

ModelShape reduce_model(const ModelShape& model, int stages) {
  ModelShape reduced = model;
  reduced.layers = std::max(2, stages);
  reduced.head_dim = 8;
  reduced.hidden = model.q_heads * 8;
  reduced.ffn = 4 * reduced.hidden;
  reduced.vocab = 97;
  return reduced;
}

std::vector<std::vector<std::int64_t>> reduce_documents(const Batch& batch, std::int64_t tokens) {
  const std::int64_t all = batch.tokens();
  std::vector<std::vector<std::int64_t>> sequences;
  for (const Sequence& sequence : batch.sequences) {
    const std::int64_t share =
        all <= tokens ? sequence.tokens : std::max<std::int64_t>(1, sequence.tokens * tokens / all);
    std::vector<std::int64_t>& lengths = sequences.emplace_back();
    std::int64_t used = 0;
    for (const DocumentId document : sequence.documents) {
      const std::int64_t length = batch.documents[static_cast<std::size_t>(document)];
      const std::int64_t scaled = std::max<std::int64_t>(1, length * share / sequence.tokens);
      if (used + scaled > share) break;
      lengths.push_back(scaled);
      used += scaled;
    }
  }
  return sequences;
}

std::vector<std::vector<std::int64_t>> random_documents(std::int64_t sequences, std::int64_t least, Rng& rng) {
  const std::int64_t most = std::max(least, kRandomTokens / sequences);
  std::vector<std::vector<std::int64_t>> lengths;
  for (std::int64_t i = 0; i < sequences; ++i) {
    std::vector<std::int64_t>& documents = lengths.emplace_back();
    std::int64_t left = rng.integer(least, most);
    const std::int64_t count = rng.integer(1, std::min(kRandomDocuments, left));
    for (std::int64_t more = count - 1; more > 0; --more) {  // each later document is left a token
      const std::int64_t high = left - more;
      const std::int64_t power = std::int64_t{1} << rng.integer(0, 10);
      documents.push_back(std::min(high, rng.integer(power, 2 * power - 1)));
      left -= documents.back();
    }
    const std::int64_t power = std::int64_t{1} << rng.integer(0, 10);
    const std::int64_t last = std::min(left, rng.integer(power, 2 * power - 1));
    std::int64_t tokens = last;
    for (const std::int64_t document : documents) tokens += document;
    documents.push_back(std::max(last, least - tokens + last));
  }
  return lengths;
}

ReducedCase reduce_case(const StudyCase& study_case, int stages) {
  ReducedCase reduced{study_case, {}};
  const ModelShape& from = study_case.model;
  const ModelShape to = reduce_model(from, stages);
  reduced.study_case.model = to;
  const auto note = [&](const char* what, std::int64_t before, std::int64_t after) {
    if (before != after) reduced.changes.push_back(fmt::format("{} {} -> {}", what, before, after));
  };
  note("layers", from.layers, to.layers);
  note("head_dim", from.head_dim, to.head_dim);
  note("hidden", from.hidden, to.hidden);
  note("ffn", from.ffn, to.ffn);
  note("vocabulary", from.vocab, to.vocab);

  const Batch batch = make_batch(study_case.documents, study_case.objective, 0);
  DocumentSource documents;
  documents.explicit_sequences = reduce_documents(batch);
  documents.sequences = static_cast<std::int64_t>(documents.explicit_sequences.size());
  std::int64_t tokens = 0;
  std::int64_t count = 0;
  for (const std::vector<std::int64_t>& sequence : documents.explicit_sequences) {
    std::int64_t length = 0;
    for (const std::int64_t document : sequence) length += document;
    documents.context_tokens = std::max(documents.context_tokens, length);
    tokens += length;
    count += static_cast<std::int64_t>(sequence.size());
  }
  note("tokens", batch.tokens(), tokens);
  note("documents", static_cast<std::int64_t>(batch.documents.size()), count);
  reduced.study_case.documents = std::move(documents);
  if (study_case.training.scope != Scope::kStep || !study_case.training.backward) {
    reduced.changes.push_back("scope -> the whole training step");
  }
  reduced.study_case.training.scope = Scope::kStep;
  reduced.study_case.training.backward = true;
  return reduced;
}

}  // namespace longhaul
