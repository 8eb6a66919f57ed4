// Ops of a run record as columns: what stands in them, the clock, every fault of a file at once.
#include "validate/device/op_columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/device/device_case.h"

namespace longhaul {
namespace {

using testing::HasSubstr;

MeasuredOp op_at(std::int32_t position, std::vector<std::int64_t> start, std::vector<std::int64_t> end) {
  MeasuredOp op;
  op.position = position;
  op.segment = 2;
  op.label = "qkv";
  op.kernel = "cublaslt";
  op.kind = OpKind::kGemm;
  op.start_ps = std::move(start);
  op.end_ps = std::move(end);
  return op;
}

Json columns_of(const std::vector<MeasuredOp>& ops) {
  Json json = Json::object();
  add_op_columns(ops, json);
  return json;
}

std::string faults_of(const Json& json, std::int32_t ranks = 1, std::int32_t repeats = 2, bool failed = false) {
  Errors errors;
  JsonReader in(json, "run.json", "", errors);
  read_op_columns(in, ranks, repeats, failed);
  in.finish();
  std::string all;
  for (const InputError& error : errors) all += error.to_string() + "\n";
  return all;
}

// Two ops of one template. The second begins before the first ends: 12 - 30 = -18.
Json small() { return columns_of({op_at(0, {10, 11}, {30, 33}), op_at(1, {12, 50}, {40, 60})}); }

TEST(OpColumns, WhatStandsInThem) {
  const Json json = small();
  EXPECT_EQ(json["clock"].dump(), R"({"tick_ps":1,"float_ms":false})");
  ASSERT_EQ(json["op_templates"].size(), 1U);
  EXPECT_EQ(json["op_blocks"].dump(),
            R"([{"rank":0,"template":[0,0],"position_step":[[1,2]],"segment":[[2,2]],"layer":[[0,2]],"chunk":[[0,2]],)"
            R"("gap_ticks":[[10,-18],[11,17]],"duration_ticks":[[20,28],[22,10]]}])");
  EXPECT_EQ(faults_of(json), "");
}

// 122 ticks of 32 ns are 3.904 us; 2305 are 73.76 us, as a float of milliseconds 3 ps more.
TEST(OpColumns, TimesOfEventsAreTicks) {
  const Json json = columns_of({op_at(0, {3904000}, {73760003})});
  EXPECT_EQ(json["clock"].dump(), R"({"tick_ps":32000,"float_ms":true})");
  EXPECT_EQ(json["op_blocks"][0]["gap_ticks"].dump(), "[[122]]");
  EXPECT_EQ(json["op_blocks"][0]["duration_ticks"].dump(), "[[2183]]");
  EXPECT_EQ(columns_of({op_at(0, {3904000}, {73760004})})["clock"]["tick_ps"], 1);  // no event says that
}

TEST(OpColumns, EveryFaultAtOnce) {
  Json json = small();
  json["clock"]["tick_ps"] = 0;
  json["clock"]["float_ms"] = "no";
  json["op_templates"][0]["kind"] = "gemmm";
  json["op_templates"][0]["byte"] = 1;
  Json& block = json["op_blocks"][0];
  block["rank"] = 3;
  block["template"][1] = 1;
  block["position_step"] = {-5, 6};
  block["segment"] = {Json::array({2, 3})};
  block["layer"] = {40000, Json::array({1})};
  block["chunk"] = {Json::array({0, 0}), 1};
  block["gap_ticks"] = {{-1, 5}, {1, 2, 3}};
  block["duration_ticks"] = {{1, -3}, "x"};
  block["blok"] = 1;
  const std::string all = faults_of(json);
  for (const char* said :
       {"/clock/tick_ps: is 0", "/clock/float_ms: is \"no\"", "/op_templates/0/kind: ", "did you mean \"gemm\"?",
        "/op_templates/0/byte: unknown key", "/op_blocks/0/rank: is 3; expected below 1",
        "/op_blocks/0/template/1: is 1; expected the number of one of 1 templates, from 0",
        "/op_blocks/0/position_step/0: leads to position -6; expected 0 to 2147483647",
        "/op_blocks/0/segment: has values for 3 ops; expected as many as template: 2",
        "/op_blocks/0/layer/0: is 40000; expected a whole number, -32768 to 32767",
        "/op_blocks/0/layer/1: has 1 values; expected two: [number, times]",
        "/op_blocks/0/chunk/0/1: is 0; expected a whole number, 1 to 2147483647",
        "/op_blocks/0/gap_ticks/0/0: leads to a start at -1 ticks; expected at least 0",
        "/op_blocks/0/duration_ticks/0/1: is -3; expected a whole number, 0 to ",
        "/op_blocks/0/gap_ticks/1: has 3 values; expected as many as template: 2",
        "/op_blocks/0/duration_ticks/1: is \"x\"; expected as many as template: 2", "/op_blocks/0/blok: unknown key"}) {
    EXPECT_THAT(all, HasSubstr(said));
  }
}

TEST(OpColumns, RepeatsAreThoseOfTheRecord) {
  EXPECT_THAT(faults_of(small(), 1, 3), HasSubstr("/op_blocks/0/gap_ticks: has 2 lists, duration_ticks has 2; expected "
                                                  "one a repeat: 3"));
  EXPECT_EQ(faults_of(small(), 1, 3, true), "");
  Json late = small();
  late["op_blocks"][0]["gap_ticks"][0][1] = 9223372036854775807;
  EXPECT_THAT(faults_of(late), HasSubstr("/op_blocks/0/gap_ticks/0/1: leads to times beyond 63 bits; expected at most "
                                         "9223372036854775807 ticks"));
}

TEST(OpColumns, WhatIsMissingOrNoList) {
  Json json = small();
  json["op_templates"] = 1;
  json.erase("clock");
  json["op_blocks"][0]["template"] = 7;
  json["op_blocks"][0].erase("chunk");
  const std::string all = faults_of(json);
  for (const char* said : {"/op_templates: is 1; expected a list of objects", "/clock: is missing",
                           "/op_blocks/0/template: is 7; expected a list of template numbers",
                           "/op_blocks/0/chunk: is missing; expected a list of whole numbers and of [number, times]"}) {
    EXPECT_THAT(all, HasSubstr(said));
  }
}

}  // namespace
}  // namespace longhaul
