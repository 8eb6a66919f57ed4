// Checks of CUDA calls: a call that fails throws a CudaError with file, line, the call's text and the library's words.
//
// The sticky-free part of the runtime's error state is cleared, so that the next call does not report this one's fault.
// What CUDA cannot recover from (a fault inside a kernel) is reported again by every later call: the process must end.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace longhaul {

class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] inline void throw_cuda_error(const char* file, int line, const char* call, const std::string& why) {
  throw CudaError(std::string(file) + ":" + std::to_string(line) + ": " + call + ": " + why);
}

inline void check_cuda(cudaError_t status, const char* file, int line, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  throw_cuda_error(file, line, call, std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status));
}

}  // namespace longhaul

#define LH_CUDA_CHECK(call) ::longhaul::check_cuda((call), __FILE__, __LINE__, #call)
