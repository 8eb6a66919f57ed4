// cuDNN's attention, forward and backward, against the CPU reference. Outputs start as NaN, so that an element that was
// never written fails.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>

#include "kernels/common/stream.h"
#include "kernels/cudnn/attention.h"
#include "tests/gpu/attention_cases.h"
#include "tests/gpu/attention_check.h"
#include "tests/gpu/device.h"

namespace longhaul {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

struct CudnnCase {
  std::string name;
  std::int64_t q_heads = 0, kv_heads = 0, head_dim = 0;
  std::vector<Piece> pieces;
  bool shared_keys = false;  // no backward
};

std::vector<CudnnCase> cases() {
  std::vector<CudnnCase> result;
  Piece top_left = piece_of(0, 128, 0, 256, MaskRule::kCausal);
  const std::vector<std::int64_t> lengths = {70, 3, 128, 200, 65};
  for (const std::int64_t dim : {64, 128, 256}) {
    const std::string end = "_" + std::to_string(dim);
    result.push_back({"dense" + end, 4, 4, dim, packed_documents({256})});
    result.push_back({"dense_gqa" + end, 4, 2, dim, packed_documents({256})});
    result.push_back({"documents_gqa" + end, 4, 1, dim, packed_documents(lengths)});
  }
  result.push_back({"documents", 2, 2, 128, packed_documents(lengths)});
  // One piece that is not square turns all into bottom-right ones.
  std::vector<Piece> mixed = packed_documents(lengths);
  mixed.push_back(bottom_right(466, 40, 466, 90));
  result.push_back({"documents_and_a_shard", 2, 1, 128, mixed});
  result.push_back({"batch", 2, 1, 128, packed_documents({192, 192, 192})});
  result.push_back({"full", 2, 1, 128, {piece_of(0, 130, 0, 300, MaskRule::kFull)}});
  result.push_back({"top_left", 2, 1, 128, {top_left}});
  result.push_back({"bottom_right", 2, 1, 128, {bottom_right(0, 128, 0, 384)}});
  result.push_back({"shards",
                    4,
                    2,
                    128,
                    {bottom_right(0, 100, 0, 300), bottom_right(100, 64, 300, 64), bottom_right(164, 9, 364, 150)}});
  result.push_back({"full_ragged",
                    2,
                    1,
                    128,
                    {piece_of(0, 50, 0, 300, MaskRule::kFull), piece_of(50, 128, 300, 77, MaskRule::kFull)}});
  // Rows 0-15 of queries and 0-7 of keys belong to nobody.
  result.push_back({"dense_with_margin", 2, 1, 128, {bottom_right(16, 128, 8, 128)}});
  result.push_back({"documents_with_margin", 2, 1, 128, {bottom_right(16, 70, 8, 70), bottom_right(100, 40, 90, 60)}});
  result.push_back({"shared_keys", 2, 1, 128, {bottom_right(0, 60, 0, 200), bottom_right(60, 80, 0, 330)}, true});
  return result;
}

struct Device {
  Stream stream;
  DeviceBuffer<Bf16> q, k, v, o, d_o, d_q, d_k, d_v;
  DeviceBuffer<float> lse;

  Device(const ReferenceShape& shape, std::size_t q_size, std::size_t k_size)
      : q(q_size),
        k(k_size),
        v(k_size),
        o(q_size),
        d_o(q_size),
        d_q(q_size),
        d_k(k_size),
        d_v(k_size),
        lse(static_cast<std::size_t>(shape.q_rows * shape.q_heads)) {
    for (auto* buffer : {&o, &d_q, &d_k, &d_v}) buffer->poison(stream.get());
    lse.poison(stream.get());
  }
  CudnnAttention::Inputs inputs() const { return {q.data(), k.data(), v.data()}; }
};

class CudnnAttentionTest : public GpuTest<testing::TestWithParam<CudnnCase>> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    const CudnnCase& test = GetParam();
    for (const Piece& piece : test.pieces) {
      shape_.q_rows = std::max(shape_.q_rows, piece.q_row + piece.q_count);
      shape_.k_rows = std::max(shape_.k_rows, piece.k_row + piece.k_count);
    }
    shape_.q_heads = test.q_heads;
    shape_.kv_heads = test.kv_heads;
    shape_.head_dim = test.head_dim;
    const std::int64_t q_size = shape_.q_rows * shape_.q_heads * shape_.head_dim;
    const std::int64_t k_size = shape_.k_rows * shape_.kv_heads * shape_.head_dim;
    q_ = random_rows(q_size, 1);
    k_ = random_rows(k_size, 2);
    v_ = random_rows(k_size, 3);
    d_o_ = random_rows(q_size, 4);
    problem_ = problem_of_pieces(test.pieces, test.q_heads, test.kv_heads, test.head_dim);
    device_ = std::make_unique<Device>(shape_, q_.size(), k_.size());
    device_->q.upload(q_, device_->stream.get());
    device_->k.upload(k_, device_->stream.get());
    device_->v.upload(v_, device_->stream.get());
    device_->d_o.upload(d_o_, device_->stream.get());
  }

  void forward(CudnnAttention& attention, const CudnnBatch& batch) {
    attention.forward(batch, device_->inputs(), device_->o.data(), device_->lse.data(), device_->stream.get());
  }
  void backward(CudnnAttention& attention, const CudnnBatch& batch) {
    attention.backward(batch, device_->inputs(), device_->o.data(), device_->lse.data(), device_->d_o.data(),
                       {device_->d_q.data(), device_->d_k.data(), device_->d_v.data()}, device_->stream.get());
  }
  // Rows of a tensor that a sequence names; the others must still be NaN.
  std::vector<double> named(const std::vector<double>& all, bool keys) const {
    const std::int64_t rows = keys ? shape_.k_rows : shape_.q_rows;
    const auto width = all.size() / static_cast<std::size_t>(rows);
    std::vector<double> result;
    for (std::int64_t row = 0; row < rows; ++row) {
      const bool is_named = std::any_of(problem_.sequences.begin(), problem_.sequences.end(), [&](const auto& s) {
        const std::int64_t begin = keys ? s.k_row : s.q_row;
        return row >= begin && row < begin + (keys ? s.k_count : s.q_count);
      });
      for (std::size_t i = 0; i < width; ++i) {
        const double value = all[static_cast<std::size_t>(row) * width + i];
        if (is_named) result.push_back(value);
      }
    }
    return result;
  }

  ReferenceShape shape_;
  CudnnAttentionProblem problem_;
  std::vector<Bf16> q_, k_, v_, d_o_;
  std::unique_ptr<Device> device_;
};

TEST_P(CudnnAttentionTest, ForwardMatchesTheReference) {
  CudnnAttention attention;
  const CudnnBatch batch(problem_, device_->stream.get());
  forward(attention, batch);
  const AttentionReference want = attention_reference(shape_, GetParam().pieces, q_, k_, v_);
  const auto& stream = device_->stream;
  // As for our own kernels (attention_test.cpp): two roundings to bf16 of numbers below 1.
  expect_each_near(named(widened(device_->o.download(stream.get())), false), named(want.o, false), 1.01 * 0x1p-8, "o");
  expect_each_near(named(widened(device_->lse.download(stream.get())), false), named(want.lse, false), 1e-5, "lse");
  forward(attention, batch);
  EXPECT_EQ(attention.plan_count(), 1U);
}

TEST_P(CudnnAttentionTest, BackwardMatchesTheReference) {
  CudnnAttention attention;
  const CudnnBatch batch(problem_, device_->stream.get());
  forward(attention, batch);
  if (GetParam().shared_keys) {
    EXPECT_THROW(backward(attention, batch), std::invalid_argument);
    return;
  }
  backward(attention, batch);
  const AttentionGradients want = attention_reference_backward(shape_, GetParam().pieces, q_, k_, v_, d_o_);
  const auto& stream = device_->stream;
  expect_close(named(widened(device_->d_q.download(stream.get())), false), named(want.q, false), 0.01, "dq");
  expect_close(named(widened(device_->d_k.download(stream.get())), true), named(want.k, true), 0.01, "dk");
  expect_close(named(widened(device_->d_v.download(stream.get())), true), named(want.v, true), 0.01, "dv");
}

TEST_P(CudnnAttentionTest, DeterministicBackwardRepeatsBitForBit) {
  if (GetParam().shared_keys) GTEST_SKIP() << "sequences that share keys have no backward call";
  problem_.deterministic = true;
  CudnnAttention attention;
  const CudnnBatch batch(problem_, device_->stream.get());
  forward(attention, batch);
  const auto bits = [&] {
    std::vector<std::uint16_t> all;
    backward(attention, batch);
    for (auto* buffer : {&device_->d_q, &device_->d_k, &device_->d_v}) {
      for (const Bf16 x : buffer->download(device_->stream.get())) all.push_back(x.bits);
    }
    return all;
  };
  const auto first = bits();
  EXPECT_TRUE(first == bits());
  const AttentionGradients want = attention_reference_backward(shape_, GetParam().pieces, q_, k_, v_, d_o_);
  expect_close(named(widened(device_->d_q.download(device_->stream.get())), false), named(want.q, false), 0.01, "dq");
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudnnAttentionTest, testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

using CudnnErrors = GpuTest<>;

TEST_F(CudnnErrors, NameTheCallAndWhatIsSupported) {
  Stream stream;
  const CudnnAttentionProblem problem{4, 2, 96, CudnnMask::kFull, {{0, 8, 0, 8}}, false};
  EXPECT_THAT([&] { CudnnBatch(problem, stream.get()); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("supported are 64, 128 and 256")));
  EXPECT_THAT([] { LH_CUDNN_CHECK(cudnnSetStream(nullptr, nullptr)); },
              ThrowsMessage<CudaError>(AllOf(HasSubstr("attention_cudnn_test.cpp:"),
                                             HasSubstr("cudnnSetStream(nullptr, nullptr): CUDNN_STATUS_"))));
}

}  // namespace
}  // namespace longhaul
