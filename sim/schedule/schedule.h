// A schedule: what every rank does in one training step. It is the only thing that an executor sees.
//
// Programs are lazy: a program is a list of blocks, a block repeats a segment of op templates over a range of layers of
// one chunk, and a cursor (a few bytes) walks it. Ranks of the same role share programs; shapes stand in the shape
// table. All ranks issue the collectives of any two groups in one common order.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "sim/schedule/op.h"
#include "sim/schedule/shape.h"
#include "sim/workload/batch.h"
#include "sim/workload/model.h"

namespace longhaul {

using SegmentId = std::int16_t;
using ProgramId = std::int32_t;
using GroupId = std::int32_t;
using ShapeId = std::int32_t;

struct Segment {
  std::string name;
  std::vector<Op> ops;
};

// Runs `segment` for layer = first, first + step, ... (`iterations` of them) of one chunk.
struct Block {
  SegmentId segment = 0;
  std::int16_t first_layer = 0;
  std::int16_t iterations = 1;
  std::int8_t layer_step = 1;
  std::int32_t chunk = 0;
};

struct Program {
  std::vector<Block> blocks;
  std::vector<TensorRef> resident;  // held from before the step to after it; already written
};

struct Group {
  std::vector<std::int32_t> members;  // ranks, in member order
};

struct RankInfo {
  ProgramId program = 0;
  std::vector<GroupId> groups;       // by GroupRole; -1: this rank has none
  std::vector<ShapeId> shapes;       // by chunk; the chunks this rank never meets are -1
  std::int32_t representative = -1;  // the rank that stands for it when folded; itself if not folded
};

struct Schedule {
  ModelShape model;
  std::shared_ptr<const Batch> batch;  // documents, objective and loss; an executor reads tokens and labels from it
  std::vector<TensorKind> tensors;
  std::vector<Segment> segments;
  std::vector<Program> programs;
  std::vector<Group> groups;
  std::vector<std::string> roles;  // names of the group roles
  std::vector<RankInfo> ranks;
  std::deque<ShapeSet> shapes;

  int streams() const { return kFirstCommunicationStream + static_cast<int>(roles.size()); }
  const ShapeSet& shape(int rank, std::int32_t chunk) const;
  // Index of `rank` among the members of its group of that role.
  int member_index(int rank, GroupRole role) const;
};

// One op as it runs: a template at a place.
struct OpInstance {
  const Op* op = nullptr;
  const ShapeSet* shape = nullptr;
  std::int32_t rank = 0;
  std::int32_t chunk = 0;
  std::int16_t layer = 0;
  SegmentId segment = 0;
  std::int16_t index = 0;  // of the op in its segment
};

// Walks one rank's program in launch order. Guarded ops are left out where their guard says so.
class Cursor {
 public:
  Cursor() = default;
  explicit Cursor(std::int32_t rank) : rank_(rank) {}
  // False at the end of the program.
  bool next(const Schedule& schedule, OpInstance& instance);

 private:
  std::int32_t rank_ = 0;
  std::int32_t block_ = 0;
  std::int16_t iteration_ = 0;
  std::int16_t index_ = 0;
};
static_assert(sizeof(Cursor) < 256);

// --- What a template means at a place -------------------------------------------------------------------------------

TensorId resolve(const OpInstance& at, const TensorRef& ref);
// The same with the chunk replaced (operands out of a chunk list).
TensorId resolve(const OpInstance& at, const TensorRef& ref, std::int32_t chunk);

// Every tensor that a reference of an acquire or release list, or of a `zero`, stands for (its chunk list expanded).
void resolve_all(const OpInstance& at, const TensorRef& ref, std::vector<TensorId>& out);

// Rows of a tensor of this kind that lives in `chunk` of `rank`.
std::int64_t tensor_rows(const Schedule& schedule, int rank, const TensorId& tensor);
std::int64_t tensor_bytes(const Schedule& schedule, int rank, const TensorId& tensor);

// Rows and bytes of a view at the place of an op.
std::int64_t view_rows(const Schedule& schedule, const OpInstance& at, const View& view);
std::int64_t view_bytes(const Schedule& schedule, const OpInstance& at, const View& view);

// The key/value operands of an attention op with chunk lists expanded: (operand, chunk) in piece order.
struct ExpandedOperand {
  const KeyValueOperand* operand = nullptr;
  std::int32_t chunk = 0;
};
std::vector<ExpandedOperand> expand_operands(const OpInstance& at);

// m, n, k of a Gemm at its place: C is m x n, k is the reduced dimension.
struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0;
};
GemmShape gemm_shape(const Schedule& schedule, const OpInstance& at);

// Bytes that an Elementwise, Move, MergePartials or Optimizer op reads plus writes.
std::int64_t touched_bytes(const Schedule& schedule, const OpInstance& at);

// Bytes that this member sends to and receives from each peer in all parts of a collective; without self-copies.
// For ring collectives (all-gather, reduce-scatter, all-reduce, broadcast): `buffer_bytes` instead.
//   all-gather: bytes of the send view; reduce-scatter: bytes of the receive view; all-reduce and broadcast: the
//   buffer.
std::int64_t collective_buffer_bytes(const Schedule& schedule, const OpInstance& at);
struct PeerBytes {
  std::int32_t peer = 0;
  std::int64_t send = 0, receive = 0;
};
std::vector<PeerBytes> exchange_bytes(const Schedule& schedule, const OpInstance& at);

// True if the op has nothing to do here: no rows, no peers, no bytes. It then completes at once and is not launched,
// but its waits, record, acquire and release hold. Members of a collective agree on it. What comes from outside the
// step (Function::kGiven) is written by nobody: it is empty too, and its views hold values all the same.
bool is_empty(const Schedule& schedule, const OpInstance& at);

}  // namespace longhaul
