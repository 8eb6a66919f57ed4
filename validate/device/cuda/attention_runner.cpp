#include "validate/device/cuda/attention_runner.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kernels/attention/piece_attention.h"
#include "kernels/cudnn/attention_problem.h"
#include "validate/device/cuda/row_kernels.h"
#ifdef LONGHAUL_CUDNN
#include "kernels/cudnn/attention.h"
#endif

namespace longhaul {
namespace {

constexpr bool kHasCudnn =
#ifdef LONGHAUL_CUDNN
    true;
#else
    false;
#endif

template <class Call>
bool cudnn_takes(const Call& call, bool backward) {
  if (!kHasCudnn) return false;
  try {
    return refusals(problem_of_pieces(*call.pieces, call.q_heads, call.kv_heads, call.head_dim), backward).empty();
  } catch (const std::invalid_argument&) {
    return false;
  }
}

// Rows of queries (or keys) that the sequences name.
std::int64_t named_rows(const std::vector<Piece>& pieces, bool queries) {
  std::int64_t rows = 0;
  for (const Piece& piece : pieces) rows += queries ? piece.q_count : piece.k_count;
  return rows;
}

template <class T>
T* pointer(const DeviceArena& memory, const Address& address, StreamId stream) {
  return reinterpret_cast<T*>(memory.at(address, stream));
}

#ifdef LONGHAUL_CUDNN
DeviceRows whole(void* data, bool bf16, std::int64_t rows, std::int64_t columns) {
  return {data, nullptr, bf16, rows, columns, columns};
}
#endif

AttentionShape shape_of(std::int64_t q_heads, std::int64_t kv_heads, std::int64_t head_dim) {
  return {static_cast<int>(q_heads), static_cast<int>(kv_heads), static_cast<int>(head_dim)};
}

}  // namespace

bool runs_on_cudnn(const AttentionForwardCall& call) { return cudnn_takes(call, false); }
bool runs_on_cudnn(const AttentionBackwardCall& call) { return cudnn_takes(call, true); }

// Row sums of dO O for every query row and head, dQ in fp32; cuDNN also keeps dK and dV of every query head in bf16
// where several share a key head. Our forward kernels keep nothing.
std::int64_t attention_workspace(const AttentionForwardCall&, bool) { return 0; }
std::int64_t attention_workspace(const AttentionBackwardCall& call, bool may_use_cudnn) {
  const std::int64_t q_items = call.q_rows * call.q_heads;
  std::int64_t bytes = q_items * 8 + q_items * call.head_dim * 4;
  if (may_use_cudnn && runs_on_cudnn(call) && call.q_heads != call.kv_heads) {
    bytes += 2 * call.k_rows * call.q_heads * call.head_dim * 2;
  }
  return bytes;
}

struct AttentionRunner::Libraries {
  bool may_use_cudnn = false;
  using ShapeKey = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
  std::map<ShapeKey, std::unique_ptr<PieceAttention>> attention;

  // A piece list is known by its address: the plan of the run owns it and outlives the device's work. Layers whose
  // lists are equal share a plan through `forwards` and `backwards`, which are searched by content once.
  struct Forward {
    std::shared_ptr<const std::vector<Piece>> pieces;
    std::int64_t q_rows = 0, k_rows = 0;
    ShapeKey shape;
    bool cudnn = false, whole = false;
    std::unique_ptr<PiecePlan> plan;
    std::unique_ptr<PieceBackwardPlan> backward_plan;
#ifdef LONGHAUL_CUDNN
    std::unique_ptr<CudnnBatch> batch;
#endif
  };
  std::vector<std::unique_ptr<Forward>> forwards, backwards;
  std::map<std::pair<const void*, bool>, Forward*> known;
#ifdef LONGHAUL_CUDNN
  std::unique_ptr<CudnnAttention> cudnn;
#endif

  PieceAttention& pieces(const ShapeKey& key) {
    std::unique_ptr<PieceAttention>& made = attention[key];
    if (made == nullptr) {
      made = std::make_unique<PieceAttention>(shape_of(std::get<0>(key), std::get<1>(key), std::get<2>(key)));
    }
    return *made;
  }

  template <class Call>
  Forward& planned(const Call& call, bool backward, cudaStream_t stream) {
    const auto found = known.find({call.pieces.get(), backward});
    if (found != known.end()) return *found->second;
    std::vector<std::unique_ptr<Forward>>& list = backward ? backwards : forwards;
    const ShapeKey shape{call.q_heads, call.kv_heads, call.head_dim};
    for (const std::unique_ptr<Forward>& other : list) {
      if (other->q_rows != call.q_rows || other->k_rows != call.k_rows || other->shape != shape) continue;
      if (!same(*other->pieces, *call.pieces)) continue;
      known[{call.pieces.get(), backward}] = other.get();
      keep_alive.push_back(call.pieces);
      return *other;
    }
    list.push_back(std::make_unique<Forward>());
    Forward& made = *list.back();
    made.pieces = call.pieces;
    made.q_rows = call.q_rows;
    made.k_rows = call.k_rows;
    made.shape = shape;
    made.cudnn = may_use_cudnn && cudnn_takes(call, backward);
    made.whole =
        named_rows(*call.pieces, true) == call.q_rows && (!backward || named_rows(*call.pieces, false) == call.k_rows);
    make_plan(made, backward, stream);
    known[{call.pieces.get(), backward}] = &made;
    return made;
  }

  void make_plan(Forward& made, bool backward, cudaStream_t stream) {
#ifdef LONGHAUL_CUDNN
    if (made.cudnn) {
      if (cudnn == nullptr) cudnn = std::make_unique<CudnnAttention>();
      const auto [q_heads, kv_heads, dim] = made.shape;
      made.batch = std::make_unique<CudnnBatch>(problem_of_pieces(*made.pieces, q_heads, kv_heads, dim), stream);
      return;
    }
#endif
    PieceAttention& own = pieces(made.shape);
    if (backward) {
      made.backward_plan =
          std::make_unique<PieceBackwardPlan>(own.plan_backward(*made.pieces, made.q_rows, made.k_rows, stream));
    } else {
      made.plan = std::make_unique<PiecePlan>(own.plan(*made.pieces, made.q_rows, made.k_rows, stream));
    }
  }

  static bool same(const std::vector<Piece>& a, const std::vector<Piece>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Piece& x, const Piece& y) {
      const auto key = [](const Piece& p) {
        return std::tie(p.q_row, p.q_count, p.q_token, p.k_row, p.k_count, p.k_token, p.q_run, p.q_stride, p.k_run,
                        p.k_stride, p.block, p.rule);
      };
      return key(x) == key(y);
    });
  }

  std::vector<std::shared_ptr<const std::vector<Piece>>> keep_alive;
};

AttentionRunner::AttentionRunner(bool may_use_cudnn) : libraries_(std::make_unique<Libraries>()) {
  libraries_->may_use_cudnn = may_use_cudnn;
}
AttentionRunner::~AttentionRunner() = default;

void AttentionRunner::forward(const AttentionForwardCall& call, const DeviceArena& memory, StreamId scratch_stream,
                              cudaStream_t stream) {
  Libraries::Forward& plan = libraries_->planned(call, false, stream);
  const auto* q = pointer<const Bf16>(memory, call.q, scratch_stream);
  const auto* k = pointer<const Bf16>(memory, call.k, scratch_stream);
  const auto* v = pointer<const Bf16>(memory, call.v, scratch_stream);
  auto* o = pointer<Bf16>(memory, call.o, scratch_stream);
  auto* lse = pointer<float>(memory, call.lse, scratch_stream);
#ifdef LONGHAUL_CUDNN
  if (plan.cudnn) {
    if (!plan.whole) {  // cuDNN leaves rows that no sequence names as they are
      fill_rows(whole(o, true, call.q_rows, call.q_heads * call.head_dim), 0.0F, stream);
      fill_rows(whole(lse, false, call.q_rows, call.q_heads), -std::numeric_limits<float>::infinity(), stream);
    }
    libraries_->cudnn->forward(*plan.batch, {q, k, v}, o, lse, stream);
    return;
  }
#endif
  libraries_->pieces(plan.shape).forward(*plan.plan, q, k, v, o, lse, stream);
}

void AttentionRunner::backward(const AttentionBackwardCall& call, const DeviceArena& memory, StreamId scratch_stream,
                               cudaStream_t stream) {
  Libraries::Forward& plan = libraries_->planned(call, true, stream);
  const auto* q = pointer<const Bf16>(memory, call.q, scratch_stream);
  const auto* k = pointer<const Bf16>(memory, call.k, scratch_stream);
  const auto* v = pointer<const Bf16>(memory, call.v, scratch_stream);
  const auto* o = pointer<const Bf16>(memory, call.o, scratch_stream);
  const auto* lse = pointer<const float>(memory, call.lse, scratch_stream);
  const auto* d_o = pointer<const Bf16>(memory, call.d_o, scratch_stream);
  auto* dq = pointer<Bf16>(memory, call.dq, scratch_stream);
  auto* dk = pointer<Bf16>(memory, call.dk, scratch_stream);
  auto* dv = pointer<Bf16>(memory, call.dv, scratch_stream);
#ifdef LONGHAUL_CUDNN
  if (plan.cudnn) {
    if (!plan.whole) {
      fill_rows(whole(dq, true, call.q_rows, call.q_heads * call.head_dim), 0.0F, stream);
      fill_rows(whole(dk, true, call.k_rows, call.kv_heads * call.head_dim), 0.0F, stream);
      fill_rows(whole(dv, true, call.k_rows, call.kv_heads * call.head_dim), 0.0F, stream);
    }
    libraries_->cudnn->backward(*plan.batch, {q, k, v}, o, lse, d_o, {dq, dk, dv}, stream);
    return;
  }
#endif
  libraries_->pieces(plan.shape).backward(*plan.backward_plan, {q, k, v, o, lse, d_o}, {dq, dk, dv}, stream);
}

}  // namespace longhaul
