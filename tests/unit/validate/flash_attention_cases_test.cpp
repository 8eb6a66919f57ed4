// The cases of FlashAttention-3's timer: the shipped file, and every fault that a file can have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "validate/gpu/flash_attention_3/cases.h"

namespace longhaul {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr const char* kColumns = "name,pass,mask,q_heads,kv_heads,list,longest,layout";

class FlashAttentionCases : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(file_); }
  std::vector<AttentionCase> read(const std::string& text) const {
    std::ofstream(file_) << text;
    return read_cases(file_);
  }
  void expect_fault(const std::string& row, const std::string& why) const {
    EXPECT_THAT([&] { read(std::string(kColumns) + "\n" + row + "\n"); },
                ThrowsMessage<CaseError>(HasSubstr(":2: " + why)))
        << row;
  }

  std::string file_ = testing::TempDir() + "flash_attention_cases.csv";
};

TEST_F(FlashAttentionCases, ReadsAList) {
  const auto cases = read("# note\npass,name,list,mask,kv_heads,q_heads\nbwd,a,2*64x200;1*3x3,causal,2,8\n");
  ASSERT_EQ(cases.size(), 1U);
  const AttentionCase& one = cases[0];
  EXPECT_EQ(one.name, "a");
  EXPECT_TRUE(one.backward && one.causal && !one.dense);
  EXPECT_EQ(one.q_heads, 8);
  EXPECT_EQ(one.kv_heads, 2);
  EXPECT_EQ(one.pieces(), 3);
  EXPECT_EQ(one.total_queries(), 131);
  EXPECT_EQ(one.total_keys(), 403);
  EXPECT_EQ(one.longest_queries(), 64);
  EXPECT_EQ(one.longest_keys(), 200);
}

TEST_F(FlashAttentionCases, LongestIsOfBothSides) {
  const auto cases =
      read(std::string(kColumns) + "\na,fwd,full,1,1,1*64x200,512,varlen\nb,fwd,full,1,1,4*9x7,0,dense\n");
  ASSERT_EQ(cases.size(), 2U);
  EXPECT_EQ(cases[0].longest_queries(), 512);
  EXPECT_EQ(cases[0].longest_keys(), 512);
  EXPECT_TRUE(cases[1].dense);
  EXPECT_EQ(cases[1].longest_queries(), 9);
}

TEST_F(FlashAttentionCases, NamesTheFault) {
  expect_fault("a,fwd,full,1,1,1*2x2,0", "7 fields, 8 columns");
  expect_fault(",fwd,full,1,1,1*2x2,0,varlen", "no name");
  expect_fault("a,forward,full,1,1,1*2x2,0,varlen", "pass is \"forward\", neither fwd nor bwd");
  expect_fault("a,fwd,none,1,1,1*2x2,0,varlen", "mask is \"none\", neither full nor causal");
  expect_fault("a,fwd,full,1,1,1*2x2,0,packed", "layout is \"packed\", neither varlen nor dense");
  expect_fault("a,fwd,full,0,1,1*2x2,0,varlen", "q_heads is \"0\"");
  expect_fault("a,fwd,full,3,2,1*2x2,0,varlen", "kv_heads does not divide q_heads");
  expect_fault("a,fwd,full,1,1,2x2,0,varlen", "list has \"2x2\", not count*QxK");
  expect_fault("a,fwd,full,1,1,1*2x2;,0,varlen", "list has \"\", not count*QxK");
  expect_fault("a,fwd,full,1,1,1*2x0,0,varlen", "a number of keys of list is \"0\"");
  expect_fault("a,fwd,full,1,1,1*2x2 ,0,varlen", "a number of keys of list is \"2 \"");
  expect_fault("a,fwd,causal,1,1,1*3x2,0,varlen", "a causal piece has more queries than keys");
  expect_fault("a,fwd,full,1,1,1*2x9,8,varlen", "longest is less than a piece's length");
  expect_fault("a,fwd,full,1,1,1*2x2;1*3x3,0,dense", "a dense layout has one entry");
  expect_fault("a,fwd,full,1,1,5*1000000x2,0,varlen", "more than 4194304 tokens");
}

TEST_F(FlashAttentionCases, NamesTheColumn) {
  EXPECT_THAT([&] { read("name,heads\n"); }, ThrowsMessage<CaseError>(HasSubstr(":1: unknown column \"heads\"")));
  EXPECT_THAT([&] { read("name,name\n"); }, ThrowsMessage<CaseError>(HasSubstr("column \"name\" twice")));
  EXPECT_THAT([&] { read("name,pass\n"); }, ThrowsMessage<CaseError>(HasSubstr("no column \"kv_heads\"")));
  EXPECT_THAT([&] { read("# nothing\n"); }, ThrowsMessage<CaseError>(HasSubstr("no case")));
  EXPECT_THAT([&] { read_cases(file_ + ".missing"); }, ThrowsMessage<CaseError>(HasSubstr("cannot be read")));
}

TEST_F(FlashAttentionCases, TheShippedOnesAreGood) {
  const auto cases = read_cases(LONGHAUL_SOURCE_ROOT "/validate/gpu/flash_attention_3/cases.csv");
  EXPECT_GE(cases.size(), 100U);
}

}  // namespace
}  // namespace longhaul
