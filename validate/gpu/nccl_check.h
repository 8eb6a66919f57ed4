// Checks of NCCL calls: a call that fails throws a CudaError with file, line, the call's text and NCCL's words.
#pragma once

#include <nccl.h>

#include <string>

#include "kernels/common/check.h"

namespace longhaul {

inline void check_nccl(ncclResult_t status, const char* file, int line, const char* call) {
  if (status == ncclSuccess) return;
  throw_cuda_error(file, line, call, std::string(ncclGetErrorString(status)) + ": " + ncclGetLastError(nullptr));
}

}  // namespace longhaul

#define LH_NCCL_CHECK(call) ::longhaul::check_nccl((call), __FILE__, __LINE__, #call)
