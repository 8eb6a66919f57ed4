// The lowering of one op, split by op family over lower_*.cpp. Internal to RankLowering.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "validate/device/lowering.h"

namespace longhaul {

// The id that a row feeds into the embedding (-1: padding), and the one that its logits must predict (-100: not
// counted), as validate/cpu/elementwise.cpp has them.
std::int32_t input_token_id(const RowToken& token, std::int64_t vocab);
std::int32_t target_token_id(const Batch& batch, const RowToken& token, std::int64_t vocab);

class OpLowering {
 public:
  OpLowering(RankLowering& rank, std::int32_t position, std::vector<DeviceCall>& calls);
  void run(MappedKernel kernel);

 private:
  // Families.
  void gemm();
  void attention_forward();
  void attention_backward();
  void merge();
  void embedding();
  void embedding_backward();
  void rms_norm();
  void rms_norm_backward();
  void rope();
  void swiglu();
  void swiglu_backward();
  void add();
  void move();
  void split_columns();
  void join_columns();
  void fill();
  void cross_entropy();
  void adamw();

  const Op& op() const { return *at_.op; }
  Rows operand(std::size_t index) const;
  void require_operands(std::size_t count) const;
  void require_equal(const Rows& a, const Rows& b) const;
  [[noreturn]] void fail(const std::string& what) const;
  std::int64_t position_of(const View& view, std::vector<std::int32_t>& positions) const;

  Address scratch(std::int64_t bytes);
  Rows scratch_rows(std::int64_t rows, std::int64_t columns, ElementType type);
  void copy(const Rows& from, const Rows& to, bool accumulate);
  // Memory that holds the rows tightly: their own, or a copy.
  Address tight(const Rows& rows);
  // Memory for tight results, and what brings them into the view when the kernel has run.
  struct Output {
    Rows target;  // the view
    Rows made;    // what the kernel writes
    bool direct = false;
    bool accumulate = false;
  };
  Output output(const View& view, const Rows& rows);
  void finish(const Output& out);

  // The keys (or values, or their gradients) of one expanded operand.
  struct Source {
    const KeyValueOperand* operand = nullptr;
    std::int32_t chunk = 0;
    std::int64_t rows = 0;
    std::vector<RowSpan> named;        // by some piece, sorted, joined
    std::vector<std::int64_t> packed;  // first row of each of those in the packed keys
  };
  // All keys of an attention op as one list of rows: an operand's own memory if it is alone, tight and named whole.
  struct Keys {
    std::vector<Source> sources;
    std::int64_t rows = 0;                             // packed
    bool whole = false;                                // one operand, every row named
    std::shared_ptr<const std::vector<Piece>> pieces;  // on packed rows
  };
  Keys list_keys() const;
  Address pack(const Keys& keys, View KeyValueOperand::*which);
  void unpack(const Keys& keys, View KeyValueOperand::*which, const Rows& packed);

  RankLowering& rank_;
  const Schedule& schedule_;
  OpInstance at_;
  std::int32_t position_;
  std::vector<DeviceCall>& calls_;
  std::int64_t scratch_used_ = 0;
};

}  // namespace longhaul
