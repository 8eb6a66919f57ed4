// What `longhaul compare` prints and writes for the tiny study, against files that a person can read.
//
// After a change on purpose: LONGHAUL_UPDATE_GOLDEN=1 rewrites them; the diff is what to review.
#include <gtest/gtest.h>

#include "tests/unit/cli/command_line.h"

namespace longhaul::command_line {
namespace {

// `found` against tests/golden/NAME; the first line that differs is in the message.
void expect_golden(const std::string& name, const std::string& found) {
  const std::filesystem::path file = std::filesystem::path(LONGHAUL_GOLDEN) / name;
  const char* update = std::getenv("LONGHAUL_UPDATE_GOLDEN");
  if (update != nullptr && std::string(update) == "1") {
    std::ofstream(file, std::ios::binary) << found;
    return;
  }
  const std::string wanted = read(file);
  if (found == wanted) return;
  std::size_t line = 1;
  std::size_t at = 0;
  while (at < found.size() && at < wanted.size() && found[at] == wanted[at]) line += found[at++] == '\n' ? 1 : 0;
  const auto line_of = [&](const std::string& text) {
    const std::size_t begin = text.rfind('\n', at == 0 ? 0 : at - 1);
    const std::size_t from = begin == std::string::npos ? 0 : begin + 1;
    return text.substr(std::min(from, text.size()), text.find('\n', std::min(at, text.size())) - from);
  };
  ADD_FAILURE() << name << " line " << line << "\n  wanted: " << line_of(wanted) << "\n  found:  " << line_of(found)
                << "\nif that is meant: LONGHAUL_UPDATE_GOLDEN=1";
}

TEST(Golden, CompareOfTheTinyStudy) {
  const Output output = longhaul("compare tiny-two-nodes --out tiny --threads 2");
  ASSERT_EQ(output.code, 0) << output.err;
  expect_golden("tiny-two-nodes.txt", output.out);
  expect_golden("tiny-two-nodes.json", read(scratch() / "tiny/results.json"));
}

}  // namespace
}  // namespace longhaul::command_line
