// One candidate of DPP's outer loop: the documents of a replica under one mesh. Internal to plan_dpp.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/strategies/pipeline/replica_plan.h"
#include "sim/strategies/pipeline/sequence_processor.h"

namespace longhaul {

// Documents of one replica: ids and tokens by local index, longest first.
struct ReplicaDocuments {
  std::vector<DocumentId> ids;
  std::vector<std::int64_t> tokens;
};

// One sequence of a stream before its chunks are written out.
struct CandidateSequence {
  std::int32_t slices = 1;
  std::int32_t document = -1;  // local index of the long document; -1: a batched chunk
  std::int32_t bucket = -1;    // its tail's bucket, or the batched one; -1: the tail fills its cell
  double seconds = 0;          // modelled time of all its chunks
};

struct DppCandidate {
  SliceMesh mesh;
  ProcessedDocuments processed;
  std::vector<std::vector<CandidateSequence>> streams;  // descending slice counts, in and across streams
  bool window_fits = true;
  // Lower bounds of the modelled time on the slowest stage, without ZeRO traffic: of all chunks, of the longest with
  // a bucket.
  double seconds = 0;
  double longest_seconds = 0;
};

// `token_cap` is T_m of Alg. 1, at least the tokens of the mesh's largest cell. A larger one lets Alg. 1 loosen T_t
// until it is reached: fewer chunks, each longer than a cell.
DppCandidate make_candidate(const ReplicaDocuments& documents, const StageCost& cost, const PipelineLayout& layout,
                            const SliceMesh& mesh, std::int64_t token_cap, std::int64_t window_tokens);

// The chunks of the candidate's streams, for assemble_replica.
std::vector<std::vector<SlotSequence>> candidate_slots(const DppCandidate& candidate,
                                                       const ReplicaDocuments& documents);

}  // namespace longhaul
