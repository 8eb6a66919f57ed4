// Checks of cuDNN calls: a call that fails throws a CudaError with file, line, the call's text and cuDNN's own words.
#pragma once

#include <cudnn.h>

#include <string>

#include "kernels/common/check.h"

namespace longhaul {

inline void check_cudnn(cudnnStatus_t status, const char* file, int line, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char detail[512] = "";
  cudnnGetLastErrorString(detail, sizeof(detail));
  std::string why = cudnnGetErrorString(status);
  if (detail[0] != '\0') why += std::string(": ") + detail;
  throw_cuda_error(file, line, call, why);
}

}  // namespace longhaul

#define LH_CUDNN_CHECK(call) ::longhaul::check_cudnn((call), __FILE__, __LINE__, #call)
