// Exchanges with a size of their own for every pair of ranks: shapes of uneven all-to-all and all-gather, and what
// every rank must hold afterwards. Needs no CUDA. Elements are fp32; every part is a multiple of 16 bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "validate/gpu/collective.h"

namespace longhaul {

// counts[from * ranks + to]: elements that `from` sends to `to`. A rank's send buffer holds its parts in order of the
// receiver, its receive buffer in order of the sender. In an all-gather every receiver gets the same part, which is
// stored once: the send buffer is that part.
struct ExchangePlan {
  std::string distribution;
  int ranks = 1;
  bool gather = false;
  std::vector<std::int64_t> counts;

  std::int64_t count(int from, int to) const {
    return counts[static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(to)];
  }
  std::int64_t send_offset(int from, int to) const;     // elements
  std::int64_t receive_offset(int to, int from) const;  // elements
  std::int64_t send_count(int rank) const;              // elements of the send buffer
  std::int64_t receive_count(int rank) const;
  // "a/b;c/d": bytes that each rank (between ';') sends to each (between '/').
  std::string bytes_text() const;
};

std::vector<ReceivedRun> received_runs(const ExchangePlan& plan, int rank);

// At least 2 ranks. Splits of `bytes` a rank on average. All-to-all: "even"; "keep" (three quarters of a rank's bytes
// stay with it); "hot-receiver" (the last rank is sent four times as much as any other); "hot-sender" (the last rank
// sends four times as much); "one-way" (only to higher ranks and to itself, as a causal shift of keys). Pairs whose
// share is empty send nothing.
std::vector<ExchangePlan> all_to_all_plans(int ranks, std::int64_t bytes);

// At least 2 ranks. All-gather, `bytes` the gathered buffer: "even"; "linear" (rank r has r + 1 shares); "heavy" (rank
// 0 has seven eighths, the others share the rest); "one-empty" (the last rank has nothing).
std::vector<ExchangePlan> all_gather_plans(int ranks, std::int64_t bytes);

}  // namespace longhaul
