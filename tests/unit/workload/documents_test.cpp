#include "sim/workload/documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "sim/core/json.h"

namespace longhaul {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr Objective kCausalBatch{};

// A file in the test's own folder, so that relative paths of a study can be tried.
std::string write_file(const std::string& name, const std::string& text) {
  const std::string file = testing::TempDir() + name;
  std::ofstream(file) << text;
  return file;
}

std::string study_file() { return testing::TempDir() + "study.json"; }

struct Read {
  std::optional<DocumentSource> source;
  std::vector<std::string> faults;
};

Read read(const Json& value) {
  Errors errors;
  Read result{read_documents(value, study_file(), "/documents", errors), {}};
  EXPECT_EQ(result.source.has_value(), errors.empty());
  for (const InputError& error : errors) {
    std::string text = error.to_string();
    if (text.starts_with(testing::TempDir())) text.erase(0, testing::TempDir().size());
    result.faults.push_back(text);
  }
  return result;
}

Json sampled() { return {{"lengths", "wlb"}, {"context_tokens", 131072}, {"sequences", 16}}; }

Json with(Json base, const char* key, const Json& value) {
  base[key] = value;
  return base;
}

TEST(Documents, DefaultsOfSampledOnes) {
  const auto source = read(sampled()).source;
  ASSERT_TRUE(source);
  EXPECT_EQ(source->seed, 1);
  EXPECT_EQ(source->steps, 1);
  const Batch batch = make_batch(*source, kCausalBatch, 0);
  EXPECT_EQ(batch.tokens(), 16 * 131072);
  EXPECT_EQ(batch.sequences.size(), 16u);
}

TEST(Documents, ExplicitOnesStandAsGiven) {
  const auto source = read({{"explicit", {{8192, 4096}, {12288}}}}).source;
  ASSERT_TRUE(source);
  const Batch batch = make_batch(*source, kCausalBatch, 0);
  EXPECT_THAT(batch.documents, ElementsAre(8192, 4096, 12288));
  EXPECT_THAT(batch.sequences[0].documents, ElementsAre(0, 1));
  EXPECT_THAT(batch.sequences[1].documents, ElementsAre(2));
  EXPECT_EQ(batch.context_tokens, 12288);
  EXPECT_EQ(source->sequences, 2);
}

TEST(Documents, ExplicitContextMayBeLonger) {
  const auto source = read({{"explicit", {{5}}}, {"context_tokens", 64}}).source;
  ASSERT_TRUE(source);
  EXPECT_EQ(make_batch(*source, kCausalBatch, 0).context_tokens, 64);
}

TEST(Documents, FilesOfLinesAndLists) {
  write_file("lengths.txt", "# lengths\n10\n7\r\n\n30\n");
  write_file("lengths.json", "[10, 7, 30]");
  for (const char* name : {"lengths.txt", "lengths.json"}) {
    const auto source = read({{"file", name}, {"context_tokens", 16}}).source;
    ASSERT_TRUE(source) << name;
    const Batch batch = make_batch(*source, kCausalBatch, 0);
    EXPECT_THAT(batch.documents, ElementsAre(10, 6, 16)) << "the second and third are cut at 16";
    EXPECT_EQ(batch.sequences.size(), 2u);
  }
}

TEST(Documents, FileTakesTheFirstSequences) {
  write_file("lengths.txt", "16\n16\n16\n5\n");
  const auto source = read({{"file", "lengths.txt"}, {"context_tokens", 16}, {"sequences", 2}}).source;
  ASSERT_TRUE(source);
  EXPECT_EQ(make_batch(*source, kCausalBatch, 0).tokens(), 32);
  const auto whole = read({{"file", "lengths.txt"}, {"context_tokens", 16}}).source;
  EXPECT_EQ(make_batch(*whole, kCausalBatch, 0).sequences.back().tokens, 5);
}

TEST(Documents, StepsAreDifferentAndAPrefixOfLongerRuns) {
  const auto two = read(with(sampled(), "steps", 2)).source;
  const auto three = read(with(sampled(), "steps", 3)).source;
  ASSERT_TRUE(two && three);
  EXPECT_NE(make_batch(*two, kCausalBatch, 0).documents, make_batch(*two, kCausalBatch, 1).documents);
  EXPECT_EQ(make_batch(*two, kCausalBatch, 1).documents, make_batch(*three, kCausalBatch, 1).documents);
}

TEST(Documents, SeedChangesTheBatch) {
  const auto one = read(sampled()).source;
  const auto two = read(with(sampled(), "seed", 2)).source;
  EXPECT_NE(make_batch(*one, kCausalBatch, 0).documents, make_batch(*two, kCausalBatch, 0).documents);
}

TEST(Documents, SameDocumentsUnderBothObjectives) {
  const auto source = read(sampled()).source;
  const Objective diffusion{ObjectiveKind::kBlockDiffusion, 32};
  EXPECT_EQ(make_batch(*source, kCausalBatch, 0).documents, make_batch(*source, diffusion, 0).documents);
}

TEST(DocumentErrors, ExactlyOneSource) {
  EXPECT_THAT(
      read(Json::object()).faults,
      ElementsAre("study.json: /documents: has 0 of \"lengths\", \"explicit\" and \"file\"; expected exactly one "
                  "of them"));
  EXPECT_THAT(
      read(with(sampled(), "explicit", {{5}})).faults,
      ElementsAre("study.json: /documents: has 2 of \"lengths\", \"explicit\" and \"file\"; expected exactly one "
                  "of them"));
  EXPECT_THAT(read(3).faults, ElementsAre("study.json: /documents: is 3; expected an object"));
}

TEST(DocumentErrors, MisspeltKeyAndMissingOnesAtOnce) {
  EXPECT_THAT(read({{"lengths", "wlb"}, {"contxt_tokens", 8}}).faults,
              ElementsAre("study.json: /documents/context_tokens: is missing; expected an integer from 1 to 134217728",
                          "study.json: /documents/sequences: is missing; expected an integer from 1 to 1048576",
                          "study.json: /documents/contxt_tokens: unknown key; did you mean \"context_tokens\"?"));
}

TEST(DocumentErrors, AbsurdNumbers) {
  EXPECT_THAT(read(with(sampled(), "sequences", -1)).faults,
              ElementsAre("study.json: /documents/sequences: is -1; expected an integer from 1 to 1048576"));
  EXPECT_THAT(read(with(sampled(), "context_tokens", 1e12)).faults,
              ElementsAre("study.json: /documents/context_tokens: is 1000000000000.0; expected an integer from 1 to "
                          "134217728"));
  EXPECT_THAT(read(with(sampled(), "sequences", 1000000)).faults,
              ElementsAre("study.json: /documents/sequences: 1000000 sequences of 131072 tokens; expected at most "
                          "1073741824 tokens a step"));
  EXPECT_THAT(read(with(sampled(), "seed", -5)).faults,
              ElementsAre("study.json: /documents/seed: is -5; expected an integer from 0 to 9223372036854775807"));
  EXPECT_THAT(read(with(sampled(), "steps", 0)).faults,
              ElementsAre("study.json: /documents/steps: is 0; expected an integer from 1 to 10000"));
}

TEST(DocumentErrors, ExplicitLists) {
  EXPECT_THAT(
      read({{"explicit", "8192"}}).faults,
      ElementsAre("study.json: /documents/explicit: is \"8192\"; expected one list of document lengths a sequence"));
  EXPECT_THAT(read({{"explicit", {{8192, 0}, 5, {4, "x"}}}}).faults,
              ElementsAre("study.json: /documents/explicit/0/1: is 0; expected a document length from 1 to 134217728",
                          "study.json: /documents/explicit/1: is 5; expected a list of document lengths",
                          "study.json: /documents/explicit/2/1: is \"x\"; expected a document length from 1 to "
                          "134217728"));
  EXPECT_THAT(read({{"explicit", {{65, 1}, {64}, {0, 66}}}, {"context_tokens", 64}}).faults,
              ElementsAre("study.json: /documents/explicit/0/0: is 65; expected a document length from 1 to 64",
                          "study.json: /documents/explicit/2/0: is 0; expected a document length from 1 to 64",
                          "study.json: /documents/explicit/2/1: is 66; expected a document length from 1 to 64"))
      << "documents longer than the context";
  EXPECT_THAT(read({{"explicit", {{60, 5}}}, {"context_tokens", 64}, {"sequences", 2}, {"steps", 4}}).faults,
              ElementsAre("study.json: /documents/explicit/0: holds 65 tokens; expected at most 64",
                          "study.json: /documents/sequences: is 2; expected 1, the number of explicit sequences, or "
                          "nothing",
                          "study.json: /documents/steps: is more than 1; expected 1; only documents sampled from "
                          "\"lengths\" differ between steps"));
  Json many = Json::array();
  for (int i = 0; i < 9; ++i) many.push_back({134217728});
  EXPECT_THAT(
      read({{"explicit", many}}).faults,
      ElementsAre("study.json: /documents/explicit: holds 1207959552 tokens; expected at most 1073741824 tokens a "
                  "step"));
}

TEST(DocumentErrors, Files) {
  const std::string named = " (named at " + testing::TempDir() + "study.json: /documents/file)";
  write_file("blanks.txt", "10 \n4\t\r\n \n");
  EXPECT_THAT(read({{"file", "blanks.txt"}, {"context_tokens", 7}}).faults, ElementsAre());
  EXPECT_THAT(read({{"file", "missing.txt"}, {"context_tokens", 8}}).faults,
              ElementsAre("missing.txt: cannot be read; expected a file of document lengths" + named));
  write_file("bad.txt", "10\n-4\n12 tokens\n");
  EXPECT_THAT(
      read({{"file", "bad.txt"}, {"context_tokens", 8}}).faults,
      ElementsAre("bad.txt: line 2: is \"-4\"; expected a document length from 1 to 1073741824" + named,
                  "bad.txt: line 3: is \"12 tokens\"; expected a document length from 1 to 1073741824" + named));
  write_file("bad.json", "[3, \"x\"]");
  EXPECT_THAT(read({{"file", "bad.json"}, {"context_tokens", 8}}).faults,
              ElementsAre("bad.json: /1: is \"x\"; expected a document length from 1 to 1073741824" + named));
  write_file("object.json", "{\"a\": 1}");
  EXPECT_THAT(read({{"file", "object.json"}, {"context_tokens", 8}}).faults,
              ElementsAre("object.json: is an object; expected a list of document lengths" + named));
  write_file("empty.txt", "# nothing\n");
  EXPECT_THAT(read({{"file", "empty.txt"}, {"context_tokens", 8}}).faults,
              ElementsAre("empty.txt: holds no lengths; expected one document length a line, or a JSON list" + named));
  write_file("short.txt", "8\n8\n");
  EXPECT_THAT(read({{"file", "short.txt"}, {"context_tokens", 8}, {"sequences", 3}}).faults,
              ElementsAre("study.json: /documents/sequences: is 3; expected at most 2, which the documents of " +
                          testing::TempDir() + "short.txt fill"));
  EXPECT_THAT(
      read({{"file", "short.txt"}}).faults,
      ElementsAre("study.json: /documents/context_tokens: is missing; expected an integer from 1 to 134217728"));
}

// 64 sequences of 1,048,576 tokens, the 1,024-GPU study's batch: every sequence is full, ids are in order.
TEST(Documents, LargeBatchIsWhole) {
  const auto source = read({{"lengths", "wlb"}, {"context_tokens", 1048576}, {"sequences", 64}}).source;
  ASSERT_TRUE(source);
  const Batch batch = make_batch(*source, kCausalBatch, 0);
  EXPECT_EQ(batch.tokens(), std::int64_t{64} * 1048576);
  DocumentId next = 0;
  for (const Sequence& sequence : batch.sequences) {
    EXPECT_EQ(sequence.tokens, 1048576);
    for (const DocumentId id : sequence.documents) EXPECT_EQ(id, next++);
  }
}

}  // namespace
}  // namespace longhaul
