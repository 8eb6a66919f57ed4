// Measured kernel calls, as every tool of this repository writes and reads them: the columns of `longhaul cost`
// (cli.md, "Row formats") and what was measured.
//
// Columns: op,pass,m,n,k,q_heads,kv_heads,head_dim,mask,pieces,bytes,impl,name,ms_median,ms_min,ms_max,batch_ms,stop
// (others, such as samples and tflops, are kept by whoever wrote them and ignored here; a column that no row of a file
// needs may be missing, but for op, ms_median, ms_min and ms_max). By op:
//   gemm         pass fwd | bwd-input | bwd-weight; m, n, k. impl: the library ("cublaslt").
//   attention    pass fwd | bwd; q_heads, kv_heads, head_dim, mask, pieces ("QxK;QxK", one call, keys of the pieces
//                apart). mask causal (bottom-right aligned), full, block-diffusion:B, block-diffusion-token:B.
//                impl: the library, the key of its classes in the calibration: "cudnn" ("cudnn-ragged": the same by a
//                variable-length call), "longhaul-hopper" and "longhaul-portable" (PieceAttention's kernels), or any
//                other name ("flash-attention-2"): unknown ones get classes of their own.
//   elementwise  bytes read plus written; m x n its rows x columns, empty where it has none (casts, optimizer). impl:
//   the
//                function (rms_norm, rms_norm_backward, swiglu, swiglu_backward, rope, merge_attention, pack_rows,
//                unpack_rows, cross_entropy_with_gradient, cast_to_bf16, cast_to_fp32, adamw, or any other): a class
//                each, and one of all.
//   copy         pass d2d | h2d | d2h; bytes of payload.
//   launch       nothing else: host time of one kernel launch.
// Rows whose `stop` is "throttled" (clocks that stayed low) are left out. ms_*: of calls alone, L2 flushed, launch cost
// kept out, as ColdTimer (validate/gpu) measures them; batch_ms: a call among many, back to back. GEMM and attention
// count by the latter where a table has it: under load the power limit lowers the clocks, and a call alone, short
// enough, never meets it. Memory-bound kernels count by calls alone, since back to back they find their operands in the
// L2. `name` groups rows:
// rows of one name up to its last '-' or '/' are left out together (k-fold), so name rows of neighbouring sizes alike
// ("causal-4096", "mix-a/per-doc/3").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/core/error.h"

namespace longhaul {

struct KernelRow {
  std::string op, pass;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t q_heads = 0, kv_heads = 0, head_dim = 0;
  std::string mask, pieces;
  std::int64_t bytes = 0;
  std::string impl, name;
  double seconds = 0;  // what a fit takes and a prediction is held against
  double alone = 0;    // median of the samples (0: `seconds`), and their ends, seconds
  double least = 0;
  double most = 0;
  // Timed by events around the call, so that launch and event latency are part of the time (the tables of the first
  // day): fitted with a time of their own that queued calls do not have.
  bool with_launch = false;
  std::string file;  // where it stands, for errors and reports
  int line = 0;
};

// Rows of one file. Errors: every faulty row (a missing, unknown or negative number, a mask or piece that is not one),
// with file, line and what was expected.
Expected<std::vector<KernelRow>> read_kernel_rows(const std::string& file);
// The same from text; `file` names it in errors.
Expected<std::vector<KernelRow>> parse_kernel_rows(const std::string& text, const std::string& file);

// Rows of one group are left out together: the name up to its last '-' or '/'.
std::string group_of(const KernelRow& row);
// (most - least) / median of the samples of calls alone.
double spread_of(const KernelRow& row);

}  // namespace longhaul
