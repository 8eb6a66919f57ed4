// How much a compute kernel and a transfer slow each other down when they run beside each other on one GPU.
//
// Compute: matrix products through kernels/gemm and an elementwise kernel (cast of fp32 to bf16, bound by memory).
// Beside it: NCCL's collectives over all GPUs of the host, at several limits of their blocks and two stream priorities;
// copies to the next GPU by the copy engines (no multiprocessors); and, on one GPU, copies within the device and to and
// from pinned host memory, and a second elementwise kernel.
//
// A pair is measured in three loops of back-to-back calls, an event after each call: compute alone, neighbour alone,
// both at once on two streams. The loops are long enough (40 ms, and 14 of the longer calls; doubled when need be) that
// at least 9 calls of each lie wholly within the time in which both ran; only those count (loop_samples.h), those of
// all ranks together. A collective's result is checked after the loop. Times are of a busy stream: launch cost is
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
};

ResultFormat overlap_format(const OverlapOptions& options);
// Measures what `file` does not have yet. Throws WrongResult and, when the loops never lie beside each other,
// LimitError.
void measure_overlap(const OverlapOptions& options, ResultFile& file, const RankTeam::OnFault& on_fault);

}  // namespace longhaul
