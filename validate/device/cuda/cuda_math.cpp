#include "validate/device/cuda/cuda_math.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "kernels/common/check.h"
#include "kernels/common/device_buffer.h"
#include "kernels/gemm/gemm.h"
#include "validate/cpu/reference_attention.h"
#include "validate/device/cuda/row_attention.h"

namespace longhaul {
namespace {

// Below so many multiply-adds an element that travels, the way to the GPU and back takes longer than the cores do: 8
// bytes at some 7 GB/s against 1e11 a second.
constexpr std::int64_t kLeastPerElement = 256;
constexpr std::int64_t kSpareBytes = std::int64_t{1} << 30;  // for cuBLASLt's workspace and kernels' own

bool fits(std::int64_t bytes) {
  std::size_t free = 0, total = 0;
  LH_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return bytes + kSpareBytes <= static_cast<std::int64_t>(free);
}

DeviceBuffer<double> uploaded(const ProductOperand& of) {
  DeviceBuffer<double> buffer(static_cast<std::size_t>(of.size()));
  const std::size_t width = static_cast<std::size_t>(of.cols()) * sizeof(double);
  LH_CUDA_CHECK(cudaMemcpy2D(buffer.data(), width, of.data(),
                             static_cast<std::size_t>(of.outerStride()) * sizeof(double), width,
                             static_cast<std::size_t>(of.rows()), cudaMemcpyHostToDevice));
  return buffer;
}

template <class T>
DeviceBuffer<T> uploaded(std::span<const T> of) {
  DeviceBuffer<T> buffer(of.size());
  buffer.upload(of, nullptr);
  return buffer;
}

// The documents of sampled rows, their keys and values packed one after the other, and what each row sees of them.
struct PackedRows {
  std::vector<Bf16> q, d_o;
  std::unique_ptr<Bf16[]> kv;  // not zeroed: gigabytes, written once
  std::int64_t kv_rows = 0;
  std::vector<std::int64_t> first_key, keys;
  std::int64_t mask_stride = 0;
  std::vector<std::uint8_t> sees;
};

class RowPacking {
 public:
  RowPacking(const ModelShape& model, const Batch& batch, const LayerRows& table, const std::vector<std::int64_t>& rows,
             int threads)
      : model_(model), batch_(batch), table_(table), rows_(rows), threads_(threads) {
    place();
  }

  // Of device memory, with the results.
  std::int64_t bytes() const {
    const auto rows = static_cast<std::int64_t>(rows_.size());
    const std::int64_t a_row = model_.q_width() * 2 * static_cast<std::int64_t>(sizeof(Bf16) + sizeof(double)) +
                               model_.q_heads * static_cast<std::int64_t>(sizeof(double)) + packed_.mask_stride;
    return rows * a_row + packed_.kv_rows * 2 * model_.kv_width() * static_cast<std::int64_t>(sizeof(Bf16));
  }

  PackedRows pack() {
    const std::int64_t width = model_.q_width();
    packed_.q.resize(rows_.size() * static_cast<std::size_t>(width));
    packed_.d_o.resize(packed_.q.size());
    packed_.sees.assign(rows_.size() * static_cast<std::size_t>(packed_.mask_stride), 0);
    share_out(static_cast<std::int64_t>(rows_.size()), threads_, [&](std::int64_t i) { pack_row(i, width); });
    pack_keys();
    return std::move(packed_);
  }

 private:
  void place() {
    for (const std::int64_t row : rows_) {
      const RowDocument document = document_of_row(batch_, row);
      if (documents_.empty() || documents_.back().first_row != document.first_row) {
        documents_.push_back(document);
        first_packed_.push_back(packed_.kv_rows);
        packed_.kv_rows += document.rows;
      }
      row_document_.push_back(documents_.size() - 1);
      packed_.first_key.push_back(first_packed_.back());
      packed_.keys.push_back(document.rows);
      packed_.mask_stride = std::max(packed_.mask_stride, document.rows);
    }
  }

  void pack_row(std::int64_t i, std::int64_t width) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t row = rows_[at];
    const RowDocument& document = documents_[row_document_[at]];
    const auto bytes = static_cast<std::size_t>(width) * sizeof(Bf16);
    std::memcpy(packed_.q.data() + i * width, table_.qkv.row(row), bytes);
    std::memcpy(packed_.d_o.data() + i * width, table_.d_o.row(row), bytes);
    std::uint8_t* sees = packed_.sees.data() + i * packed_.mask_stride;
    std::int64_t keys = 0;
    for (std::int64_t key = 0; key < document.rows; ++key) {
      if (!mask_allows(document.tokens, batch_.objective, row - document.first_row, key)) continue;
      sees[key] = 1;
      keys = key + 1;
    }
    packed_.keys[at] = keys;
  }

  void pack_keys() {
    constexpr std::int64_t kRows = 256;
    const std::int64_t width = 2 * model_.kv_width();
    packed_.kv = std::make_unique_for_overwrite<Bf16[]>(static_cast<std::size_t>(packed_.kv_rows * width));
    for (std::size_t d = 0; d < documents_.size(); ++d) {
      const RowDocument& document = documents_[d];
      share_out((document.rows + kRows - 1) / kRows, threads_, [&](std::int64_t block) {
        for (std::int64_t i = block * kRows; i < std::min(document.rows, (block + 1) * kRows); ++i) {
          std::memcpy(packed_.kv.get() + (first_packed_[d] + i) * width,
                      table_.qkv.row(document.first_row + i) + model_.q_width(),
                      static_cast<std::size_t>(width) * sizeof(Bf16));
        }
      });
    }
  }

  const ModelShape& model_;
  const Batch& batch_;
  const LayerRows& table_;
  const std::vector<std::int64_t>& rows_;
  int threads_;
  std::vector<RowDocument> documents_;      // with sampled rows, in their order
  std::vector<std::int64_t> first_packed_;  // by document
  std::vector<std::size_t> row_document_;   // by row
  PackedRows packed_;
};

std::vector<RowResult> run_rows(const ModelShape& model, const PackedRows& packed) {
  const std::size_t rows = packed.keys.size();
  const auto width = static_cast<std::size_t>(model.q_width()), heads = static_cast<std::size_t>(model.q_heads);
  const DeviceBuffer<Bf16> q = uploaded<Bf16>(packed.q), d_o = uploaded<Bf16>(packed.d_o);
  const auto kv_size = static_cast<std::size_t>(packed.kv_rows * 2 * model.kv_width());
  const DeviceBuffer<Bf16> kv = uploaded<Bf16>(std::span<const Bf16>(packed.kv.get(), kv_size));
  const DeviceBuffer<std::int64_t> first_key = uploaded<std::int64_t>(packed.first_key);
  const DeviceBuffer<std::int64_t> keys = uploaded<std::int64_t>(packed.keys);
  const DeviceBuffer<std::uint8_t> sees = uploaded<std::uint8_t>(packed.sees);
  DeviceBuffer<double> o(rows * width), dq(rows * width), lse(rows * heads);
  RowAttention problem;
  problem.rows = static_cast<std::int64_t>(rows);
  problem.q_heads = model.q_heads;
  problem.kv_heads = model.kv_heads;
  problem.head_dim = model.head_dim;
  problem.q = q.data();
  problem.d_o = d_o.data();
  problem.kv = kv.data();
  problem.first_key = first_key.data();
  problem.keys = keys.data();
  problem.mask_stride = packed.mask_stride;
  problem.sees = sees.data();
  problem.o = o.data();
  problem.dq = dq.data();
  problem.lse = lse.data();
  row_attention(problem, nullptr);
  const std::vector<double> all_o = o.download(nullptr), all_dq = dq.download(nullptr), all_lse = lse.download(nullptr);
  std::vector<RowResult> results(rows);
  const auto slice = [](const std::vector<double>& of, std::size_t i, std::size_t count) {
    const auto begin = of.begin() + static_cast<std::ptrdiff_t>(i * count);
    return std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(count));
  };
  for (std::size_t i = 0; i < rows; ++i) {
    results[i] = {slice(all_o, i, width), slice(all_dq, i, width), slice(all_lse, i, heads)};
  }
  return results;
}

class CudaMath : public DoubleMath {
 public:
  CudaMath(int index, int threads) : index_(index), threads_(threads), host_(threads) {}

  ProductElsewhere products() override {
    LH_CUDA_CHECK(cudaSetDevice(index_));
    // Its workspace goes with it: what is measured of a step's memory comes after.
    return [this, gemm = std::make_shared<Gemm>()](const ProductOperand& a, bool transpose_a, const ProductOperand& b,
                                                   bool transpose_b, ProductResult c) {
      return multiply(*gemm, a, transpose_a, b, transpose_b, c);
    };
  }

  std::vector<RowResult> rows(const ModelShape& model, const Batch& batch, const LayerRows& table,
                              const std::vector<std::int64_t>& rows) override {
    LH_CUDA_CHECK(cudaSetDevice(index_));
    RowPacking packing(model, batch, table, rows, threads_);
    if (model.head_dim > kRowAttentionMostDim || model.head_dim % 8 != 0 || !fits(packing.bytes())) {
      return host_.rows(model, batch, table, rows);
    }
    std::vector<RowResult> results = run_rows(model, packing.pack());
    turn_back_rows(model, batch, rows, results);
    return results;
  }

 private:
  bool multiply(Gemm& gemm, const ProductOperand& a, bool transpose_a, const ProductOperand& b, bool transpose_b,
                ProductResult c) {
    const std::int64_t inner = transpose_a ? a.rows() : a.cols();
    const std::int64_t elements = a.size() + b.size() + c.size();
    const double per_element =
        static_cast<double>(c.size()) * static_cast<double>(inner) / static_cast<double>(elements);
    LH_CUDA_CHECK(cudaSetDevice(index_));
    if (per_element < static_cast<double>(kLeastPerElement) || !fits(elements * 8)) return false;
    const DeviceBuffer<double> on_a = uploaded(a), on_b = uploaded(b);
    DeviceBuffer<double> on_c(static_cast<std::size_t>(c.size()));
    GemmProblem problem;
    problem.m = c.rows();
    problem.n = c.cols();
    problem.k = inner;
    problem.transpose_a = transpose_a;
    problem.transpose_b = transpose_b;
    problem.a_stride = a.cols();
    problem.b_stride = b.cols();
    problem.c_stride = c.cols();
    gemm.run_double(problem, on_a.data(), on_b.data(), on_c.data(), nullptr);
    // Pages that no one has touched come one by one to a copy, many at a time to many threads.
    share_out(c.rows(), threads_, [&](std::int64_t row) { c.row(row).setZero(); });
    const std::size_t width = static_cast<std::size_t>(c.cols()) * sizeof(double);
    LH_CUDA_CHECK(cudaMemcpy2D(c.data(), static_cast<std::size_t>(c.outerStride()) * sizeof(double), on_c.data(), width,
                               width, static_cast<std::size_t>(c.rows()), cudaMemcpyDeviceToHost));
    return true;
  }

  int index_, threads_;
  HostMath host_;
};

}  // namespace

std::unique_ptr<DoubleMath> make_cuda_math(int index, int threads) {
  return std::make_unique<CudaMath>(index, threads);
}

}  // namespace longhaul
