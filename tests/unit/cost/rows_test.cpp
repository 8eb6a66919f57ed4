// Rows of the `cost` command: masks, passed-through columns, every error text.
#include <gtest/gtest.h>

#include "sim/cost/cost_rows.h"
#include "tests/unit/cost/sample_calibration.h"
#include "tests/unit/error_texts.h"

namespace longhaul {
namespace {

std::vector<std::int64_t> pairs_of(const std::string& pieces, const std::string& mask) {
  std::vector<std::int64_t> pairs;
  const auto parsed = parse_pieces(pieces, mask);
  EXPECT_TRUE(parsed);
  for (const AttentionPieceSize& piece : *parsed) pairs.push_back(piece.pairs);
  return pairs;
}

std::vector<std::string> row_errors(const std::string& rows) {
  const std::string header = "op,pass,m,n,k,q_heads,kv_heads,head_dim,mask,pieces,bytes\n";
  return texts(predict_rows(sample_model(sample_device("sample")), header + rows, "rows.csv"));
}

// 3 queries that see 5, 6 and 7 keys.
TEST(ParsePieces, CausalIsBottomRightAligned) {
  EXPECT_EQ(pairs_of("3x7", "causal"), (std::vector<std::int64_t>{5 + 6 + 7}));
  EXPECT_EQ(pairs_of("3x7;1x1", "full"), (std::vector<std::int64_t>{21, 1}));
}

// csbp.md 2.2: clean L(L+b)/2 (token-causal L(L+1)/2), corrupted to clean L(L-b)/2, own blocks L b; the repository's
// check L = 8, b = 2, token-causal: 76 in all. Clean and corrupted queries on the clean keys are one piece.
TEST(ParsePieces, BlockDiffusionIsTwoPieces) {
  EXPECT_EQ(pairs_of("8x8", "block-diffusion:2"), (std::vector<std::int64_t>{40 + 24, 16}));
  EXPECT_EQ(pairs_of("8x8", "block-diffusion-token:2"), (std::vector<std::int64_t>{36 + 24, 16}));
  // Blocks 0-3, 4-7, 8-9. Before: 4 x 4 + 2 x 8; own: 16 + 16 + 4; block-causal is their sum.
  EXPECT_EQ(pairs_of("10x10", "block-diffusion:4"), (std::vector<std::int64_t>{68 + 32, 36}));
  EXPECT_EQ(pairs_of("4x4", "block-diffusion:4"), (std::vector<std::int64_t>{16, 16}));  // nothing before
}

TEST(PredictRows, AddsFourColumnsAndKeepsTheOthers) {
  const KernelModel model = sample_model(sample_device("sample"));
  const auto out =
      predict_rows(model, "# note\nname,op,pass,bytes\nfirst,copy,h2d,1000000\nsecond,elementwise,,4096\n", "-");
  ASSERT_TRUE(out);
  // 16 us + 1e6 B x 2e-11 s = 36 us, -25 % and +50 %; 16 us + 4096 x 2.5e-13 s.
  EXPECT_EQ(*out,
            "name,op,pass,bytes,predicted_ms,low_ms,high_ms,basis\n"
            "first,copy,h2d,1000000,0.036000000,0.027000000,0.054000000,interpolated\n"
            "second,elementwise,,4096,0.016001024,0.012000768,0.024001536,calibrated\n");
}

TEST(PredictRows, GemmAndAttentionMatchTheModel) {
  const KernelModel model = sample_model(sample_device("sample"));
  const auto out = predict_rows(model,
                                "op,pass,m,n,k,q_heads,kv_heads,head_dim,mask,pieces\n"
                                "gemm,bwd-weight,1024,1024,1024,,,,,\n"
                                "attention,bwd,,,,8,2,128,causal,300x300;100x200\n",
                                "-");
  ASSERT_TRUE(out);
  const Estimate gemm = KernelModel::timed_alone(model.gemm(GemmPass::kBackwardWeight, 1024, 1024, 1024));
  const auto pieces = parse_pieces("300x300;100x200", "causal");
  const Estimate attention = KernelModel::timed_alone(model.attention_backward(*pieces, 8, 2, 128));
  EXPECT_NE(out->find(std::to_string(gemm.seconds * 1e3).substr(0, 7)), std::string::npos) << *out;
  EXPECT_NE(out->find(std::to_string(attention.seconds * 1e3).substr(0, 7)), std::string::npos) << *out;
}

TEST(PredictRows, NamesEveryFaultOfEveryRow) {
  EXPECT_EQ(
      row_errors("gem,fwd,1,1,1,,,,,,\ngemm,forward,0,x,1,,,,,,\n"),
      (std::vector<std::string>{
          "rows.csv: line 2: op is \"gem\"; expected one of gemm, attention, elementwise, copy; did you mean \"gemm\"?",
          "rows.csv: line 3: pass is \"forward\"; expected one of fwd, bwd-input, bwd-weight",
          "rows.csv: line 3: m is \"0\"; expected an integer from 1 to 1073741824",
          "rows.csv: line 3: n is \"x\"; expected an integer from 1 to 1073741824"}));
  EXPECT_EQ(row_errors("copy,h2d,1\n"),
            (std::vector<std::string>{"rows.csv: line 2: has 3 fields; expected 11, as the header has"}));
  EXPECT_EQ(
      row_errors("attention,fwd,,,,6,4,128,causal,4x4,\n"),
      (std::vector<std::string>{"rows.csv: line 2: q_heads is 6 for 4 kv_heads; expected a multiple of kv_heads"}));
}

TEST(PredictRows, NamesFaultsOfMasksAndPieces) {
  const auto of = [](const std::string& mask, const std::string& pieces) {
    return row_errors("attention,fwd,,,,4,4,128," + mask + "," + pieces + ",\n").at(0);
  };
  EXPECT_EQ(
      of("casual", "4x4"),
      "rows.csv: line 2: mask is \"casual\"; expected causal, full, block-diffusion:B or block-diffusion-token:B; "
      "did you mean \"causal\"?");
  EXPECT_EQ(of("block-diffusion:0", "4x4"),
            "rows.csv: line 2: mask is \"block-diffusion:0\"; expected a block of at least one token");
  EXPECT_EQ(of("causal", "4x"), "rows.csv: line 2: piece \"4x\"; expected QxK with rows of at least one");
  EXPECT_EQ(of("causal", "4x3"),
            "rows.csv: line 2: piece \"4x3\" is causal; expected at least as many keys as queries");
  EXPECT_EQ(of("block-diffusion:2", "4x8"), "rows.csv: line 2: piece \"4x8\" is block-diffusion; expected LxL");
}

TEST(PredictRows, HeaderIsNeeded) {
  const KernelModel model = sample_model(sample_device("sample"));
  const auto empty = predict_rows(model, "", "-");
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error()[0].to_string(), "-: holds no header; expected a line of column names");
  const auto other = predict_rows(model, "pass,m\n", "-");
  ASSERT_FALSE(other);
  EXPECT_NE(other.error()[0].to_string().find("has no column \"op\""), std::string::npos);
}

}  // namespace
}  // namespace longhaul
