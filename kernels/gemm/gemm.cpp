#include "kernels/gemm/gemm.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "kernels/common/check.h"

namespace longhaul {
namespace {

void check_cublas(cublasStatus_t status, const char* file, int line, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) throw_cuda_error(file, line, call, cublasLtGetStatusName(status));
}

#define LH_CUBLAS_CHECK(call) check_cublas((call), __FILE__, __LINE__, #call)

// Owners of cuBLASLt's descriptors.
struct Destroy {
  void operator()(cublasLtMatmulDesc_t desc) const { cublasLtMatmulDescDestroy(desc); }
  void operator()(cublasLtMatrixLayout_t layout) const { cublasLtMatrixLayoutDestroy(layout); }
  void operator()(cublasLtMatmulPreference_t preference) const { cublasLtMatmulPreferenceDestroy(preference); }
};
using MatmulDesc = std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy>;
using MatrixLayout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy>;
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroy>;

// A row-major matrix is, to column-major cuBLASLt, its transpose: rows and columns change places, the stride stays.
MatrixLayout layout_of(cudaDataType_t type, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  LH_CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(columns),
                                             static_cast<std::uint64_t>(rows), stride));
  return MatrixLayout(layout);
}

void set(const MatmulDesc& desc, cublasLtMatmulDescAttributes_t attribute, cublasOperation_t value) {
  LH_CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(desc.get(), attribute, &value, sizeof(value)));
}

template <class T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  LH_CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)));
}

// The largest power of two up to 256 that divides the address.
std::uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  return std::uint32_t{1} << std::min(std::countr_zero(address | 256U), 8);
}

cudaDataType_t type_of(GemmOutput output) { return output == GemmOutput::kBf16 ? CUDA_R_16BF : CUDA_R_32F; }

std::string text_of(const GemmProblem& problem) {
  return "m " + std::to_string(problem.m) + ", n " + std::to_string(problem.n) + ", k " + std::to_string(problem.k);
}

}  // namespace

// Column-major cuBLASLt computes C^T = op(B)^T op(A)^T: its first factor is our B, its second our A.
struct Gemm::Plan {
  MatmulDesc desc;
  MatrixLayout first, second, result;
  cublasLtMatmulAlgo_t algorithm{};
};

Gemm::Gemm(std::size_t workspace_bytes) : workspace_(workspace_bytes) {
  cublasLtHandle_t handle = nullptr;
  LH_CUBLAS_CHECK(cublasLtCreate(&handle));
  handle_.reset(handle);
}

Gemm::~Gemm() = default;

const Gemm::Plan& Gemm::plan_for(const PlanKey& key) {
  const auto known = plans_.find(key);
  if (known != plans_.end()) return *known->second;

  const GemmProblem& problem = key.problem;
  auto plan = std::make_unique<Plan>();
  cublasLtMatmulDesc_t desc = nullptr;
  LH_CUBLAS_CHECK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  plan->desc.reset(desc);
  set(plan->desc, CUBLASLT_MATMUL_DESC_TRANSA, problem.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(plan->desc, CUBLASLT_MATMUL_DESC_TRANSB, problem.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  plan->first = layout_of(CUDA_R_16BF, problem.b_rows(), problem.b_columns(), problem.b_stride);
  plan->second = layout_of(CUDA_R_16BF, problem.a_rows(), problem.a_columns(), problem.a_stride);
  plan->result = layout_of(type_of(problem.output), problem.m, problem.n, problem.c_stride);

  cublasLtMatmulPreference_t raw_preference = nullptr;
  LH_CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&raw_preference));
  const Preference preference(raw_preference);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_.size_bytes()});
  // Partial sums of split-K are added in fp32 and in a fixed order, never in bf16 and never by atomics.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.a_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.c_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.c_alignment);

  cublasLtMatmulHeuristicResult_t choice{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_.get(), plan->desc.get(), plan->first.get(), plan->second.get(),
                                     plan->result.get(), plan->result.get(), preference.get(), 1, &choice, &found);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
    throw_cuda_error(__FILE__, __LINE__, "cublasLtMatmulAlgoGetHeuristic",
                     std::string(cublasLtGetStatusName(status)) + ": no algorithm for " + text_of(problem));
  }
  plan->algorithm = choice.algo;
  return *plans_.emplace(key, std::move(plan)).first->second;
}

void Gemm::run(const GemmProblem& problem, const void* a, const void* b, void* c, cudaStream_t stream) {
  if (!problem.valid())
    throw std::invalid_argument("Gemm: sizes below 1 or a stride below its row: " + text_of(problem));
  const Plan& plan = plan_for({problem, alignment_of(a), alignment_of(b), alignment_of(c)});
  const float one = 1;
  const float beta = problem.accumulate ? 1.0F : 0.0F;
  LH_CUBLAS_CHECK(cublasLtMatmul(handle_.get(), plan.desc.get(), &one, b, plan.first.get(), a, plan.second.get(), &beta,
                                 c, plan.result.get(), c, plan.result.get(), &plan.algorithm, workspace_.data(),
                                 workspace_.size_bytes(), stream));
}

void Gemm::run_double(const GemmProblem& problem, const double* a, const double* b, double* c, cudaStream_t stream) {
  if (!problem.valid())
    throw std::invalid_argument("Gemm: sizes below 1 or a stride below its row: " + text_of(problem));
  cublasLtMatmulDesc_t raw = nullptr;
  LH_CUBLAS_CHECK(cublasLtMatmulDescCreate(&raw, CUBLAS_COMPUTE_64F, CUDA_R_64F));
  const MatmulDesc desc(raw);
  set(desc, CUBLASLT_MATMUL_DESC_TRANSA, problem.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(desc, CUBLASLT_MATMUL_DESC_TRANSB, problem.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  const MatrixLayout first = layout_of(CUDA_R_64F, problem.b_rows(), problem.b_columns(), problem.b_stride);
  const MatrixLayout second = layout_of(CUDA_R_64F, problem.a_rows(), problem.a_columns(), problem.a_stride);
  const MatrixLayout result = layout_of(CUDA_R_64F, problem.m, problem.n, problem.c_stride);
  const double one = 1, beta = problem.accumulate ? 1 : 0;
  LH_CUBLAS_CHECK(cublasLtMatmul(handle_.get(), desc.get(), &one, b, first.get(), a, second.get(), &beta, c,
                                 result.get(), c, result.get(), nullptr, workspace_.data(), workspace_.size_bytes(),
                                 stream));
}

}  // namespace longhaul
