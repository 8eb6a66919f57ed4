// How much a compute kernel and a transfer slow each other down when they run beside each other on one GPU.
//
// Compute: matrix products through kernels/gemm and an elementwise kernel (cast of fp32 to bf16, bound by memory).
// Beside it: NCCL's collectives over all GPUs of the host, at several limits of their blocks and two stream priorities;
// copies to the next GPU by the copy engines (no multiprocessors); and, on one GPU, copies within the device and to and
// from pinned host memory, and a second elementwise kernel.
//
// Two ways to lie beside each other:
// * loops: both sides are loops of back-to-back calls, an event after each. Only calls that lie wholly within the time
//   in which both ran count (loop_samples.h). What a busy stream sees, waiting included: a collective that is launched
//   while a compute kernel holds all multiprocessors starts when that kernel ends.
// * covered: one long collective that has its blocks before the compute loop starts. Compute calls count if they lie
//   within it; the collective is the one call, with compute beside it but for its first millisecond. What the two do to
//   each other once both run.
// Each side alone and both together are measured in turn, several times, so that clocks that fall with heat or power
// fall on all of them. A collective's result is checked after each turn. Times are of a busy stream: launch cost is
// hidden.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "validate/gpu/rank_team.h"
#include "validate/gpu/result_file.h"

namespace longhaul {

struct OverlapOptions {
  int gpus = 0;
  std::vector<std::int64_t> sizes;  // bytes, as nccl-tests counts them
  std::vector<int> max_ctas;        // NCCL's maxCTAs; 0 leaves it to NCCL
  bool covered = false;             // else loops; sizes are not used
  bool quiet = false;               // no line a row on standard error
};

ResultFormat overlap_format(const OverlapOptions& options);
// Measures what `file` does not have yet. Throws WrongResult and, when the loops never lie beside each other,
// LimitError.
void measure_overlap(const OverlapOptions& options, ResultFile& file, const RankTeam::OnFault& on_fault);

}  // namespace longhaul
