#include "validate/fit/row_class.h"

#include "sim/core/invariant.h"
#include "sim/cost/cost_rows.h"

namespace longhaul {
namespace {

std::string library_of(const KernelRow& row) { return row.impl.starts_with("cudnn-ragged") ? "cudnn" : row.impl; }

// "cudnn-ragged" says that a variable-length call was made, whatever the pieces.
AttentionForm form_of(const KernelRow& row, const AttentionLayout& layout, const AttentionWork& work) {
  if (!row.impl.starts_with("cudnn-ragged")) return attention_form(layout, work);
  return work.mask() == PieceMask::kOffsetCausal ? AttentionForm::kRaggedOffset : AttentionForm::kRagged;
}

}  // namespace

std::optional<RowClass> row_class(const KernelRow& row, int multiprocessors) {
  if (row.op == "gemm") return RowClass{"gemm", gemm_call(row.m, row.n, row.k, multiprocessors)};
  if (row.op == "elementwise") {
    return RowClass{row.impl.empty() ? "elementwise" : "elementwise/" + row.impl,
                    elementwise_call(Bytes{row.bytes}, row.impl, row.m, row.n)};
  }
  if (row.op == "copy") {
    const CopyKind kind = row.pass == "d2d"   ? CopyKind::kDeviceToDevice
                          : row.pass == "h2d" ? CopyKind::kHostToDevice
                                              : CopyKind::kDeviceToHost;
    return RowClass{"copy-" + row.pass, copy_call(kind, Bytes{row.bytes})};
  }
  const auto pieces = parse_pieces(row.pieces, row.mask);
  LH_ASSERT(pieces.has_value(), "pieces of a row that was read");
  const AttentionWork work = attention_work(*pieces);
  const AttentionLayout layout = attention_layout(library_of(row));
  const bool forward = row.pass == "fwd";
  if (!one_call(layout, work, forward)) return std::nullopt;
  return RowClass{attention_class(library_of(row), forward, form_of(row, layout, work)),
                  attention_call(layout, forward, work, row.q_heads, row.kv_heads, row.head_dim, multiprocessors)};
}

}  // namespace longhaul
