// What each op does to memory, one function an op family. All are pure functions of the machine's contents; the order
// in which they run is the executor's business (executor.h).
#pragma once

#include <cstdint>
#include <vector>

#include "validate/cpu/storage.h"

namespace longhaul {

void run_gemm(Machine& machine, const OpInstance& at);
void run_attention(Machine& machine, const OpInstance& at);
void run_merge_partials(Machine& machine, const OpInstance& at);
void run_elementwise(Machine& machine, const OpInstance& at);
void run_move(Machine& machine, const OpInstance& at);
void run_optimizer(Machine& machine, const OpInstance& at);

// What an op `given` writes for one element, in [-1, 1).
double given_value(TensorKindId kind, std::int16_t layer, const RowToken& token, std::int64_t column);

// One collective: the calls of all members, in member order, empty ones included; they agree (agreement.h).
void run_collective(Machine& machine, const std::vector<OpInstance>& calls);

// Keys of a piece that a query row sees are consecutive: [first, second) in key rows of the piece, both in 0..k_count.
struct KeyRange {
  std::int64_t begin = 0, end = 0;
};
KeyRange visible_keys(const Piece& piece, std::int64_t query);

}  // namespace longhaul
