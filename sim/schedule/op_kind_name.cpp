#include "sim/schedule/op_kind_name.h"

namespace longhaul {

const char* op_kind_name(OpKind kind) {
  switch (kind) {
    case OpKind::kGemm:
      return "gemm";
    case OpKind::kAttention:
      return "attention";
    case OpKind::kMergePartials:
      return "merge";
    case OpKind::kElementwise:
      return "elementwise";
    case OpKind::kMove:
      return "move";
    case OpKind::kOptimizer:
      return "optimizer";
    case OpKind::kCollective:
      return "collective";
  }
  return "op";
}

}  // namespace longhaul
