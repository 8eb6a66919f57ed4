// Times of NCCL's collectives on the GPUs of this host, as nccl-tests takes them.
//
// One process, a host thread and a communicator's rank for each GPU, fp32, out of place. A point: 5 warm-up calls, then
// 5 batches of back-to-back calls (200 a batch up to 1 MiB, 60 up to 16 MiB, 20 above), all ranks starting each batch
// together; a batch's time per call is host time from the first launch to the end of the last call over the calls, mean
// over the ranks (nccl-tests' -a 1); the point is the median batch. Afterwards every rank checks the whole receive
// buffer of the last call, which was poisoned before the first, against exact values (pattern.h).
//
// With `graph`, a batch replays a CUDA graph of 20 calls (nccl-tests' -G): what the device takes, where launches from
// the host are slower than a small collective.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "validate/gpu/collective.h"
#include "validate/gpu/rank_team.h"
#include "validate/gpu/result_file.h"

namespace longhaul {

struct CollectivesOptions {
  int gpus = 0;
  std::vector<std::int64_t> sizes;  // bytes, as nccl-tests counts them
  std::vector<MeasuredCollective> collectives;
  // What the program cannot see and the file states: GPUs on a host's board, the link between them.
  int gpus_per_node = 0;
  std::string fabric = "unstated";
  bool graph = false;
  bool quiet = false;  // no line a row on standard error
};

// A collective gave a wrong result.
class WrongResult : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The columns of the published tables in validate/data; in-place columns stay empty.
ResultFormat collectives_format(const CollectivesOptions& options);
// Measures what `file` does not have yet. Throws WrongResult; a size that does not fit the memory is left out, and
// said.
void measure_collectives(const CollectivesOptions& options, ResultFile& file, const RankTeam::OnFault& on_fault);

// Uneven all-to-all and all-gather: every distribution of exchange_plan.h at each size (bytes: all-to-all, the mean
// send buffer of a rank; all-gather, the gathered buffer); all-gather as sends and receives and as broadcasts.
ResultFormat uneven_format(const CollectivesOptions& options);
void measure_uneven(const CollectivesOptions& options, ResultFile& file, const RankTeam::OnFault& on_fault);

}  // namespace longhaul
