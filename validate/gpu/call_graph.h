// Calls on a stream, captured once as a CUDA graph and replayed. Movable, not copyable.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <type_traits>

#include "kernels/common/check.h"

namespace longhaul {

class CallGraph {
 public:
  // What `enqueue` puts on `stream`, which is not run now. Only calls of this thread are captured.
  CallGraph(cudaStream_t stream, const std::function<void()>& enqueue) {
    LH_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    enqueue();
    cudaGraph_t captured = nullptr;
    LH_CUDA_CHECK(cudaStreamEndCapture(stream, &captured));
    const std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, Destroy> graph(captured);
    cudaGraphExec_t executable = nullptr;
    LH_CUDA_CHECK(cudaGraphInstantiate(&executable, graph.get(), 0));
    executable_.reset(executable);
  }

  void launch(cudaStream_t stream) const { LH_CUDA_CHECK(cudaGraphLaunch(executable_.get(), stream)); }

 private:
  struct Destroy {
    void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
    void operator()(cudaGraphExec_t executable) const { cudaGraphExecDestroy(executable); }
  };
  std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Destroy> executable_;
};

}  // namespace longhaul
