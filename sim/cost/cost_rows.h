// Rows of the `cost` command: kernel calls as CSV in, the same rows with predicted times out (cli.md, "Row formats").
//
// Columns read: op,pass,m,n,k,q_heads,kv_heads,head_dim,mask,pieces,bytes, and of elementwise rows impl, which may name
// a function that the calibration measured, over m x n; others are kept and passed through. Read as sim/core/csv.h
// says. Times are those of calls timed alone, as the tables have them that the class was fitted to
// (KernelModel::timed_alone).
#pragma once

#include <string>
#include <vector>

#include "sim/core/error.h"
#include "sim/cost/estimate.h"

namespace longhaul {

// Pieces of one attention call from `pieces` ("QxK;QxK;...") and `mask`: "causal" (bottom-right aligned), "full",
// "block-diffusion:B" or "block-diffusion-token:B" (pieces LxL: a clean sequence of L tokens and its corrupted copy, in
// blocks of B; csbp.md 2.2: clean to clean block- or token-causal, corrupted to the clean blocks before its own,
// corrupted to its own block). An error says what is wrong, without a place.
tl::expected<std::vector<AttentionPieceSize>, InputError> parse_pieces(const std::string& pieces,
                                                                       const std::string& mask);

// `csv` with the columns predicted_ms,low_ms,high_ms,basis (milliseconds, 9 places) added to each row. Errors: every
// faulty row, with file, line and column.
Expected<std::string> predict_rows(const KernelModel& model, const std::string& csv, const std::string& file);

}  // namespace longhaul
