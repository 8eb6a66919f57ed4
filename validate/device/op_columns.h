// Measured ops as columns: the "longhaul-run/2" form of a record's ops, for runs of many thousand.
//
//   "clock": {"tick_ps": 32000, "float_ms": true},
//   "op_templates": [{"label", "kind", "pass", "stream", "index", "kernel", "bytes", ...}, ...],
//   "op_blocks": [{"rank", "template", "position_step", "segment", "layer", "chunk", "gap_ticks", "duration_ticks"},
//   ...]
//
// * A template is what ops share, in the order in which ops first use them. Left out of it are "function" where it is
//   none, "collective" where the op is none, "group" where there is none and "communication" where it is false.
// * A block holds ops of one rank that follow each other, each with as many times. `template` has one number an op,
// from
//   0. `position_step` (position less that of the op before; of the first, of an op at -1), `segment`, `layer` and
//   `chunk` have one value an op too; [value, n] stands for n ops alike.
// * `gap_ticks` and `duration_ticks` have one list a repeat, one number an op. Gap: start less the end of the op before
//   in the block (of the first: of the step's start); negative where streams overlap. Duration: end less start.
// * A tick is `tick_ps` picoseconds. With `float_ms`, a time is what the events of CUDA tell: the whole ticks from the
//   step's start as a float of milliseconds, times 1e9, rounded to a picosecond (1e-8 off a tick at most). Written
//   so only if that gives back every time exactly; else a tick is one picosecond.
//
// Nothing is lost: what is read equals what was written. The same ops give the same bytes.
#pragma once

#include <vector>

#include "sim/core/json.h"
#include "validate/device/run_record.h"

namespace longhaul {

// Adds the three keys to the object `record`. Every op has as many starts as ends.
void add_op_columns(const std::vector<MeasuredOp>& ops, Json& record);

// Reads them; faults go to `in`'s errors, all at once: a template number that is not in the table, columns of another
// length than `template`, a rank not below `ranks`, other than `repeats` lists of times (unless the run `failed`),
// times before the step's start or beyond 63 bits, ends before starts, wrong types, keys that are missing or not known.
std::vector<MeasuredOp> read_op_columns(JsonReader& in, std::int32_t ranks, std::int32_t repeats, bool failed);

}  // namespace longhaul
