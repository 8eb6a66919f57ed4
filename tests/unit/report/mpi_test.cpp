// `longhaul validate --device host` in several real processes, started by mpirun (environment variable MPIRUN).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/cli/command_line.h"
#include "tests/unit/report/small_case.h"

namespace longhaul::command_line {
namespace {

using testing::HasSubstr;

constexpr const char* kHost = " --device host --reduced --repeats 2 --warmups 0 ";

const std::string& study() {
  static const std::string file = write("small.json", small_study(R"(["flashcp", "dpp", "ulysses"])").dump(2));
  return file;
}

std::string command(const std::string& more) {
  return "'" + std::string(std::getenv("LONGHAUL")) + "' validate " + study() + kHost + more;
}

// `line` behind mpirun, in the folder of this test.
Output mpirun(const std::string& line) {
  const std::string all = "cd '" + scratch().string() +
                          "' && OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                          "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 '" +
                          std::getenv("MPIRUN") + "' " + line + " >out 2>err";
  const int status = std::system(all.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read(scratch() / "out"),
          read(scratch() / "err")};
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

Json record_in(const std::string& folder) {
  return Json::parse(read(scratch() / folder / "run-record.json")).at("record");
}

std::size_t op_count(const Json& record) {
  std::size_t count = 0;
  for (const Json& block : record.at("op_blocks")) count += block.at("template").size();
  return count;
}

class Processes : public testing::TestWithParam<int> {};

// What is exchanged and the order of sums are those of one process: every error is the same, but for the loss, whose
// sum over ranks is taken process by process.
TEST_P(Processes, HaveTheNumbersOfOne) {
  static const Json alone = [] {
    const Output one = longhaul("validate " + study() + kHost + "--strategy flashcp --out alone");
    EXPECT_EQ(one.code, 0) << one.err;
    return record_in("alone");
  }();
  const int processes = GetParam();
  const Output output = mpirun("-n " + std::to_string(processes) + " " + command("--strategy flashcp --out together"));
  ASSERT_EQ(output.code, 0) << output.err;
  EXPECT_EQ(count(output.out, "worst ops"), 1U) << "one process reports: " << output.out;
  const Json together = record_in("together");
  EXPECT_EQ(together["identity"]["fingerprint"], alone["identity"]["fingerprint"]);
  EXPECT_EQ(op_count(together), op_count(alone));
  EXPECT_EQ(together["placement"], "real");
  EXPECT_EQ(together["hardware"]["devices"], together["ranks"]);
  ASSERT_EQ(together["numerics"].size(), alone["numerics"].size());
  for (std::size_t i = 0; i < alone["numerics"].size(); ++i) {
    const Json &have = together["numerics"][i], &want = alone["numerics"][i];
    EXPECT_EQ(have["quantity"], want["quantity"]);
    EXPECT_TRUE(have["pass"].get<bool>()) << have;
    // Tensors come in another order from several processes, and sums of squares are added in that order.
    const double error = want["error"].get<double>();
    EXPECT_NEAR(have["error"].get<double>(), error, 1e-12 * (have["quantity"] == "loss" ? 1 : error))
        << have["quantity"];
  }
}

INSTANTIATE_TEST_SUITE_P(Mpi, Processes, testing::Values(2, 4));

// Stages on both sides of the border between two processes: messages of layers, of heads and of shards meet in one
// order everywhere.
TEST(Mpi, APipelineRunsAcrossProcesses) {
  const Output output = mpirun("-n 2 " + command("--strategy dpp --out pipeline"));
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("\npass: 14 checks"));
  EXPECT_EQ(record_in("pipeline")["placement"], "real");
}

TEST(Mpi, WrongInputIsToldOnce) {
  const Output output = mpirun("-n 2 " + command("--strategy flashpc"));
  EXPECT_EQ(output.code, 2);
  EXPECT_EQ(count(output.err, "did you mean \"flashcp\"?"), 1U) << output.err;
  EXPECT_EQ(output.out, "");
}

TEST(Mpi, VirtualRanksAreForOneProcess) {
  const Output output = mpirun("-n 2 " + command("--strategy flashcp --virtual-ranks 2"));
  EXPECT_EQ(output.code, 2);
  EXPECT_THAT(output.err, HasSubstr("--virtual-ranks: several processes run one rank a GPU"));
}

TEST(Mpi, AFaultOfAnotherProcessEndsAllAndNamesIt) {
  const Output output = mpirun("-n 1 " + command("--strategy flashcp --out broken") +
                               " : -n 1 env LONGHAUL_DATA=/nowhere " + command("--strategy flashcp --out broken"));
  EXPECT_EQ(output.code, 3) << output.err;
  EXPECT_THAT(output.err, HasSubstr("process 1 of 2"));
  EXPECT_EQ(count(output.err, "longhaul: "), 1U) << output.err;
  EXPECT_EQ(output.out, "");
  EXPECT_FALSE(std::filesystem::exists(scratch() / "broken" / "run-record.json"));
}

TEST(Mpi, AGateThatFailsIsTheExitCodeOfAll) {
  const Output output = mpirun("-n 2 " + command("--strategy flashcp --max-error 0.000001 --junit gates.xml"));
  EXPECT_EQ(output.code, 1) << output.err;
  EXPECT_THAT(read(scratch() / "gates.xml"), HasSubstr("<failure"));
}

TEST(Mpi, OneProcessIsAsWithoutALauncher) {
  const Output output = mpirun("-n 1 " + command("--strategy flashcp --out single"));
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_EQ(record_in("single")["placement"], "virtual");
}

TEST(Mpi, ALauncherThatMpiDoesNotKnowIsNamed) {
  const std::string line =
      "cd '" + scratch().string() + "' && PMI_SIZE=2 PMI_RANK=0 " + command("--strategy flashcp") + " >out 2>err";
  const int status = std::system(line.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 3);
  EXPECT_THAT(read(scratch() / "err"), HasSubstr("the launcher started 2 processes, MPI sees 1"));
}

}  // namespace
}  // namespace longhaul::command_line
