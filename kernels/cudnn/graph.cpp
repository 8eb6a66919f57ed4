#include "kernels/cudnn/graph.h"

#include <cstring>
#include <string>
#include <utility>

namespace longhaul {
namespace {

constexpr std::int64_t kAlignment = 16;  // bytes, of every tensor
constexpr std::int64_t kMostConfigurations = 16;

void set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
         std::int64_t count, const void* values) {
  LH_CUDNN_CHECK(cudnnBackendSetAttribute(descriptor, name, type, count, values));
}
void set_int(const CudnnDescriptor& descriptor, cudnnBackendAttributeName_t name, std::int64_t value) {
  set(descriptor.get(), name, CUDNN_TYPE_INT64, 1, &value);
}
void set_bool(const CudnnDescriptor& descriptor, cudnnBackendAttributeName_t name, bool value) {
  set(descriptor.get(), name, CUDNN_TYPE_BOOLEAN, 1, &value);
}
void set_type(const CudnnDescriptor& descriptor, cudnnBackendAttributeName_t name, cudnnDataType_t value) {
  set(descriptor.get(), name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}
void set_descriptor(const CudnnDescriptor& descriptor, cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
  const cudnnBackendDescriptor_t raw = value.get();
  set(descriptor.get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
}
void finalize(const CudnnDescriptor& descriptor) { LH_CUDNN_CHECK(cudnnBackendFinalize(descriptor.get())); }

CudnnDescriptor pointwise_settings(cudnnPointwiseMode_t mode, cudnnDataType_t math) {
  CudnnDescriptor settings = make_descriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  set(settings.get(), CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  set_type(settings, CUDNN_ATTR_POINTWISE_MATH_PREC, math);
  return settings;
}

template <class T>
std::vector<std::byte> bytes_of(T value) {
  std::vector<std::byte> bytes(sizeof(T));
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

// Engine configurations of the graph, best first.
std::vector<CudnnDescriptor> configurations(const CudnnDescriptor& graph) {
  const CudnnDescriptor heuristics = make_descriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set_descriptor(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  set(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  finalize(heuristics);
  std::vector<CudnnDescriptor> configs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < kMostConfigurations; ++i) {
    configs.push_back(make_descriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    raw.push_back(configs.back().get());
  }
  std::int64_t found = 0;
  LH_CUDNN_CHECK(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, kMostConfigurations, &found, raw.data()));
  configs.resize(static_cast<std::size_t>(found));
  return configs;
}

}  // namespace

CudnnDescriptor make_descriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t raw = nullptr;
  LH_CUDNN_CHECK(cudnnBackendCreateDescriptor(type, &raw));
  return CudnnDescriptor(raw);
}

CudnnPlan::CudnnPlan(CudnnDescriptor plan, std::int64_t workspace_bytes,
                     std::vector<std::pair<CudnnTensor, std::vector<std::byte>>> constants)
    : plan_(std::move(plan)), workspace_bytes_(workspace_bytes), constants_(std::move(constants)) {}

void CudnnPlan::run(cudnnHandle_t handle, const std::map<CudnnTensor, const void*>& pointers, void* workspace) const {
  std::vector<std::int64_t> ids;
  std::vector<void*> data;
  for (const auto& [id, pointer] : pointers) {
    ids.push_back(id);
    data.push_back(const_cast<void*>(pointer));
  }
  for (const auto& [id, bytes] : constants_) {
    ids.push_back(id);
    data.push_back(const_cast<std::byte*>(bytes.data()));
  }
  const CudnnDescriptor pack = make_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const auto count = static_cast<std::int64_t>(ids.size());
  set(pack.get(), CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, data.data());
  set(pack.get(), CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data());
  set(pack.get(), CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  finalize(pack);
  LH_CUDNN_CHECK(cudnnBackendExecute(handle, plan_.get(), pack.get()));
}

CudnnTensor CudnnGraph::make_tensor(const CudnnTensorSpec& spec, bool by_value) {
  CudnnDescriptor tensor = make_descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const auto id = static_cast<CudnnTensor>(tensors_.size()) + 1;
  set_type(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, spec.type);
  set(tensor.get(), CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, spec.dims.data());
  set(tensor.get(), CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, spec.strides.data());
  set_int(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  set_int(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment);
  if (spec.is_virtual) set_bool(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  if (by_value) set_bool(tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  if (spec.ragged_offset != 0) {
    set_descriptor(tensor, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC,
                   tensors_[static_cast<std::size_t>(spec.ragged_offset - 1)]);
  }
  finalize(tensor);
  tensors_.push_back(std::move(tensor));
  return id;
}

CudnnTensor CudnnGraph::tensor(const CudnnTensorSpec& spec) { return make_tensor(spec, false); }

CudnnTensor CudnnGraph::constant(float value) {
  const CudnnTensor id = make_tensor({{1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, false, 0}, true);
  constants_.emplace_back(id, bytes_of(value));
  return id;
}

CudnnTensor CudnnGraph::constant(std::int32_t value) {
  const CudnnTensor id = make_tensor({{1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_INT32, false, 0}, true);
  constants_.emplace_back(id, bytes_of(value));
  return id;
}

void CudnnGraph::add_operation(cudnnBackendDescriptorType_t type, const CudnnDescriptor* settings,
                               cudnnBackendAttributeName_t settings_name,
                               std::initializer_list<std::pair<cudnnBackendAttributeName_t, CudnnTensor>> tensors) {
  CudnnDescriptor operation = make_descriptor(type);
  if (settings != nullptr) set_descriptor(operation, settings_name, *settings);
  for (const auto& [name, tensor] : tensors) {
    if (tensor != 0) set_descriptor(operation, name, tensors_[static_cast<std::size_t>(tensor - 1)]);
  }
  finalize(operation);
  operations_.push_back(std::move(operation));
}

void CudnnGraph::matmul(CudnnTensor a, CudnnTensor b, CudnnTensor y, const MatmulSizes& sizes) {
  CudnnDescriptor settings = make_descriptor(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  set_type(settings, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  finalize(settings);
  add_operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, &settings, CUDNN_ATTR_OPERATION_MATMUL_DESC,
                {{CUDNN_ATTR_OPERATION_MATMUL_ADESC, a},
                 {CUDNN_ATTR_OPERATION_MATMUL_BDESC, b},
                 {CUDNN_ATTR_OPERATION_MATMUL_CDESC, y},
                 {CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, sizes.m},
                 {CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, sizes.n},
                 {CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, sizes.k}});
  settings_.push_back(std::move(settings));
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, CudnnTensor x, CudnnTensor b, CudnnTensor y,
                           cudnnDataType_t math) {
  CudnnDescriptor settings = pointwise_settings(mode, math);
  finalize(settings);
  add_operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, &settings, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x},
                 {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b},
                 {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}});
  settings_.push_back(std::move(settings));
}

void CudnnGraph::index(int axis, CudnnTensor x, CudnnTensor y, cudnnDataType_t math) {
  CudnnDescriptor settings = pointwise_settings(CUDNN_POINTWISE_GEN_INDEX, math);
  set_int(settings, CUDNN_ATTR_POINTWISE_AXIS, axis);
  finalize(settings);
  add_operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, &settings, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x}, {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}});
  settings_.push_back(std::move(settings));
}

void CudnnGraph::select(CudnnTensor x, CudnnTensor b, CudnnTensor predicate, CudnnTensor y) {
  CudnnDescriptor settings = pointwise_settings(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT);
  finalize(settings);
  add_operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, &settings, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x},
                 {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b},
                 {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, predicate},
                 {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}});
  settings_.push_back(std::move(settings));
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t op, CudnnTensor x, CudnnTensor y) {
  CudnnDescriptor settings = make_descriptor(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  set_type(settings, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  set(settings.get(), CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
  finalize(settings);
  add_operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, &settings, CUDNN_ATTR_OPERATION_REDUCTION_DESC,
                {{CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x}, {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y}});
  settings_.push_back(std::move(settings));
}

void CudnnGraph::reshape(CudnnTensor x, CudnnTensor y) {
  add_operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, nullptr, CUDNN_ATTR_OPERATION_RESHAPE_XDESC,
                {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x}, {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y}});
}

CudnnPlan CudnnGraph::build(cudnnHandle_t handle) {
  const CudnnDescriptor graph = make_descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const CudnnDescriptor& operation : operations_) raw.push_back(operation.get());
  set(graph.get(), CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(raw.size()),
      raw.data());
  set(graph.get(), CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  finalize(graph);
  std::string why = "heuristics name no engine";
  for (const CudnnDescriptor& config : configurations(graph)) {
    CudnnDescriptor plan = make_descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set_descriptor(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    const cudnnStatus_t status = cudnnBackendFinalize(plan.get());
    if (status != CUDNN_STATUS_SUCCESS) {
      char detail[512] = "";
      cudnnGetLastErrorString(detail, sizeof(detail));
      why = std::string(cudnnGetErrorString(status)) + ": " + detail;
      continue;
    }
    std::int64_t bytes = 0, count = 0;
    LH_CUDNN_CHECK(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                            &count, &bytes));
    return CudnnPlan(std::move(plan), bytes, std::move(constants_));
  }
  throw_cuda_error(__FILE__, __LINE__, "cudnnBackendFinalize(execution plan)", why);
}

}  // namespace longhaul
