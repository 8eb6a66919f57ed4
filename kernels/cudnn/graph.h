// A graph of operations for cuDNN's backend API, and the plan that runs it.
//
// Tensors have four dimensions. A virtual tensor exists only inside the fused kernel. A by-value tensor is one number
// that the graph carries. A ragged tensor starts, for each index of dimension 0, at the element that its offset tensor
// (int64, one more entry than dimension 0) names, instead of at a multiple of the stride.
//
// Operations are added in the order in which they compute; cuDNN matches the whole pattern with its fused engines, so a
// graph that no engine knows fails in `build`, with cuDNN's words.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/cudnn/check.h"

namespace longhaul {

struct DestroyDescriptor {
  void operator()(cudnnBackendDescriptor_t descriptor) const { cudnnBackendDestroyDescriptor(descriptor); }
};
using CudnnDescriptor = std::unique_ptr<void, DestroyDescriptor>;
CudnnDescriptor make_descriptor(cudnnBackendDescriptorType_t type);

using Dims = std::array<std::int64_t, 4>;

// The tensor's unique id in its graph, from 1; 0 is none.
using CudnnTensor = std::int64_t;

struct CudnnTensorSpec {
  Dims dims{}, strides{};
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  bool is_virtual = false;
  CudnnTensor ragged_offset = 0;
};

// Tensors that hold the numbers of rows and columns that count, one a batch entry; 0 where all do.
struct MatmulSizes {
  CudnnTensor m = 0, n = 0, k = 0;
};

class CudnnPlan {
 public:
  CudnnPlan(CudnnDescriptor plan, std::int64_t workspace_bytes,
            std::vector<std::pair<CudnnTensor, std::vector<std::byte>>> constants);

  std::int64_t workspace_bytes() const { return workspace_bytes_; }
  // Enqueues on the handle's stream. `pointers`: every tensor that is neither virtual nor by value.
  void run(cudnnHandle_t handle, const std::map<CudnnTensor, const void*>& pointers, void* workspace) const;

 private:
  CudnnDescriptor plan_;
  std::int64_t workspace_bytes_;
  std::vector<std::pair<CudnnTensor, std::vector<std::byte>>> constants_;  // by-value tensors
};

class CudnnGraph {
 public:
  CudnnTensor tensor(const CudnnTensorSpec& spec);
  CudnnTensor constant(float value);
  CudnnTensor constant(std::int32_t value);

  // y = a b over the last two dimensions, fp32.
  void matmul(CudnnTensor a, CudnnTensor b, CudnnTensor y, const MatmulSizes& sizes = {});
  // y = mode(x[, b]) computed in `math`.
  void pointwise(cudnnPointwiseMode_t mode, CudnnTensor x, CudnnTensor b, CudnnTensor y,
                 cudnnDataType_t math = CUDNN_DATA_FLOAT);
  // y = the element's place along dimension `axis` of x.
  void index(int axis, CudnnTensor x, CudnnTensor y, cudnnDataType_t math);
  // y = predicate ? x : b.
  void select(CudnnTensor x, CudnnTensor b, CudnnTensor predicate, CudnnTensor y);
  // Over the dimensions in which y is smaller (shorter by a factor for grouped heads).
  void reduce(cudnnReduceTensorOp_t op, CudnnTensor x, CudnnTensor y);
  // y is x seen with other dimensions and strides.
  void reshape(CudnnTensor x, CudnnTensor y);

  // The first engine configuration of heuristic mode A that makes a plan. Throws CudaError if none does.
  CudnnPlan build(cudnnHandle_t handle);

 private:
  void add_operation(cudnnBackendDescriptorType_t type, const CudnnDescriptor* settings,
                     cudnnBackendAttributeName_t settings_name,
                     std::initializer_list<std::pair<cudnnBackendAttributeName_t, CudnnTensor>> tensors);
  CudnnTensor make_tensor(const CudnnTensorSpec& spec, bool by_value);

  std::vector<CudnnDescriptor> tensors_;  // of id i at i - 1
  std::vector<CudnnDescriptor> settings_;
  std::vector<CudnnDescriptor> operations_;
  std::vector<std::pair<CudnnTensor, std::vector<std::byte>>> constants_;
};

}  // namespace longhaul
