// Times of the memory-bound kernels of kernels/elementwise on one GPU.
//
// A sample: one call between two events on a stream that is never idle, so that launch cost stays out; before each, a
// buffer of three times the L2 is written, so that nothing is found there. 20 samples after 3 warm-ups. Results are
// checked by tests/gpu, not here.
#pragma once

#include "validate/gpu/result_file.h"

namespace longhaul {

// Columns op,tokens,width,bytes,ms_median,ms_min,ms_max,reps: bytes are those read plus those written, each once; width
// is the row of a token in elements (cross-entropy: the vocabulary; rope and merge: heads of 128).
ResultFormat elementwise_format();
// Measures what `file` does not have yet, on GPU 0.
void measure_elementwise(ResultFile& file);

}  // namespace longhaul
