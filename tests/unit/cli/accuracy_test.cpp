// longhaul accuracy: which tables it knows. What it prints: tests/unit/accuracy; the errors: tests/oracle/accuracy.
#include <gtest/gtest.h>

#include "tests/unit/cli/command_line.h"

namespace longhaul::command_line {
namespace {

TEST(Accuracy, TablesThatAreNotThereAreRefused) {
  for (const char* name : {"pipeline", "throughput"}) {
    const Output output = longhaul(std::string("accuracy --table ") + name);
    EXPECT_EQ(output.code, 2);
    EXPECT_NE(output.err.find(std::string(name) +
                              " is not built yet; expected one of collectives, context-parallel, kernels, runs"),
              std::string::npos)
        << output.err;
  }
  const Output typo = longhaul("accuracy --table colectives");
  EXPECT_EQ(typo.code, 2);
  EXPECT_NE(typo.err.find(
                "unknown table \"colectives\"; expected one of collectives, context-parallel, kernels, runs; did you "
                "mean \"collectives\"?"),
            std::string::npos)
      << typo.err;
}

}  // namespace
}  // namespace longhaul::command_line
