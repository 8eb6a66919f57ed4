// Tensors of a schedule: what a rank holds in device memory, and views of them.
//
// A tensor is rows x columns of one element type. Its rows carry a row map: which token of which document (clean or
// noisy view) each row is, or padding. Parameters, gradients and optimizer state are flat: one row an element, one
// column, no row map. Tensor ids are (kind, layer, chunk, instance); recompute and each ring hop write a new instance.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/workload/batch.h"

namespace longhaul {

enum class ElementType : std::uint8_t { kBf16, kFp32, kInt32 };
constexpr std::int64_t element_bytes(ElementType type) { return type == ElementType::kBf16 ? 2 : 4; }

// Where a byte of device memory belongs in the report.
enum class MemoryCategory : std::uint8_t {
  kParameters,     // resident weights or their shard, and weights gathered for a layer
  kGathered,       // weights gathered for a layer under ZeRO-3
  kGradients,      // resident gradients or their shard, and per-layer gradients before reduction
  kOptimizer,      // fp32 master weights and Adam moments
  kCheckpoints,    // layer inputs kept for the backward pass
  kActivations,    // all else that the layers make
  kKeyValue,       // keys and values that outlive their chunk or were gathered, and their gradients
  kCommunication,  // send and receive buffers
  kLogits,         // vocabulary-wide rows
  kCount,
};
const char* to_string(MemoryCategory category);

enum class TokenView : std::uint8_t { kClean, kNoisy };

// `count` consecutive rows holding tokens of one document from `first` on; document -1 is padding. Tokens are
// consecutive, or, with a stride, in runs: row i holds token first + (i / run) stride + i % run.
struct RowRun {
  DocumentId document = -1;
  TokenView view = TokenView::kClean;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int32_t run = 0, stride = 0;  // run 0: consecutive
  std::int64_t token(std::int64_t row) const { return run == 0 ? first + row : first + row / run * stride + row % run; }
  bool operator==(const RowRun&) const = default;
};

struct RowMap {
  std::vector<RowRun> runs;
  std::int64_t rows = 0;    // sum of counts, padding included
  std::int64_t tokens = 0;  // rows that are not padding
};
using RowMapPtr = std::shared_ptr<const RowMap>;
// Drops empty runs, joins runs that continue each other, sums the counts.
RowMapPtr make_row_map(std::vector<RowRun> runs);

// A set of rows of a tensor, in the order in which the view lists them.
struct RowSpan {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  bool operator==(const RowSpan&) const = default;
};
struct RowList {
  std::vector<RowSpan> spans;
  std::int64_t rows = 0;
};
using RowListPtr = std::shared_ptr<const RowList>;
// Drops empty spans, joins adjacent ones, sums the counts.
RowListPtr make_row_list(std::vector<RowSpan> spans);

// Small indices, set by the builder.
using TensorKindId = std::int16_t;
using RowMapSlot = std::int16_t;
using RowListSlot = std::int16_t;
using ChunkListSlot = std::int16_t;

inline constexpr RowMapSlot kFlat = -1;      // a flat tensor: `flat_rows` elements, no row map
inline constexpr RowListSlot kAllRows = -1;  // a view of every row, in order
inline constexpr std::int16_t kNoLayer = INT16_MIN;
inline constexpr std::int32_t kNoChunk = -1;  // tensors that belong to the step, not to a chunk

// What all tensors of one name have in common.
struct TensorKind {
  std::string name;
  RowMapSlot rows = kFlat;     // slot of the shape table that holds the row map
  std::int64_t flat_rows = 0;  // kFlat only: elements
  std::int64_t columns = 1;    // elements a row: width, or heads x head_dim
  ElementType type = ElementType::kBf16;
  MemoryCategory category = MemoryCategory::kActivations;
};

// One tensor of one rank.
struct TensorId {
  TensorKindId kind = 0;
  std::int16_t layer = kNoLayer;
  std::int32_t chunk = kNoChunk;
  std::uint8_t instance = 0;
  bool operator==(const TensorId&) const = default;
  // Unique for chunk < 2^24 - 1, kind < 2^12, layer in int16 and instance < 2^8... packed kind|instance|layer|chunk.
  std::uint64_t key() const {
    return (static_cast<std::uint64_t>(static_cast<std::uint16_t>(kind)) << 48) ^
           (static_cast<std::uint64_t>(instance) << 40) ^
           (static_cast<std::uint64_t>(static_cast<std::uint16_t>(layer)) << 24) ^
           (static_cast<std::uint64_t>(static_cast<std::uint32_t>(chunk)) & 0xffffffU);
  }
};

// A tensor as an op template names it: relative to the layer and chunk at which the op runs. In `Program::resident` the
// layer offset is the layer itself. With `chunks` set it stands for one tensor for each chunk in that list of the shape
// table, which is allowed in acquire and release lists and as the operand of a `zero`.
struct TensorRef {
  TensorKindId kind = -1;
  std::int16_t layer_offset = 0;  // added to the current layer
  bool has_layer = true;          // false: layer is kNoLayer
  bool has_chunk = true;          // false: chunk is kNoChunk
  std::uint8_t instance = 0;
  ChunkListSlot chunks = -1;
};

enum class Access : std::uint8_t {
  kRead,
  kWrite,       // every element of the view is set
  kAccumulate,  // added to; needs an earlier write of the same elements
};

// A view: some rows and a range of columns of a tensor. Of a flat tensor: a dense row-major matrix of `flat_rows` x
// `columns` elements that starts at element `flat_begin`.
struct View {
  TensorRef tensor;
  Access access = Access::kRead;
  RowListSlot rows = kAllRows;
  std::int64_t column_begin = 0;
  std::int64_t columns = 0;
  std::int64_t flat_begin = 0;
  std::int64_t flat_rows = 0;
};

}  // namespace longhaul
