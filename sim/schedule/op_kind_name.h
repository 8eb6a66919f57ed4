// What reports and traces call the kinds of ops.
#pragma once

#include "sim/schedule/op.h"

namespace longhaul {

// "gemm", "attention", "merge", "elementwise", "move", "optimizer", "collective".
const char* op_kind_name(OpKind kind);

}  // namespace longhaul
