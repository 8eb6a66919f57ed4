// longhaul: one binary, one subcommand a job. Each subcommand stands in its own file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "sim/cli/command.h"
#include "sim/core/invariant.h"
#include "sim/study/results_json.h"

namespace longhaul {
namespace {

std::string command_line(int argc, char** argv) {
  std::string line;
  for (int i = 0; i < argc; ++i) {
    const std::string word = argv[i];
    const bool plain = word.find_first_of(" \t\n\"'\\$`*?<>|&;()[]{}!#~") == std::string::npos && !word.empty();
    std::string quoted;
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += (i == 0 ? "" : " ") + (plain ? word : "'" + quoted + "'");
  }
  return line;
}

// Of the contract, and not there yet: named, so that nobody takes them for typing errors.
const std::vector<std::string>& not_built() {
  static const std::vector<std::string> names = {"search", "sweep", "report"};
  return names;
}

// Options are left to the parser.
Errors subcommand_faults(const std::string& word, const CLI::App& app) {
  if (word.empty() || word.front() == '-') return {};
  std::vector<std::string> built;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == word) return {};
    built.push_back(command->get_name());
  }
  const std::string expected = fmt::format("one of {}", fmt::join(built, ", "));
  const std::vector<std::string>& missing = not_built();
  if (std::find(missing.begin(), missing.end(), word) != missing.end()) {
    return {{"longhaul", "", fmt::format("{} is not built yet", word), expected, ""}};
  }
  return {{"longhaul", "", fmt::format("unknown subcommand \"{}\"", word), expected, nearest_name(word, built)}};
}

int run(int argc, char** argv) {
  set_reproduce_command(command_line(argc, argv));
  CLI::App app("How fast a long-context training step runs, where its time and memory go, and which parallelism wins.",
               "longhaul");
  app.set_version_flag("--version", std::string(longhaul_version()));
  app.require_subcommand(1);
  Action action;
  add_compare(app, action);
  add_simulate(app, action);
  add_plan(app, action);
  add_verify(app, action);
  add_validate(app, action);
  add_cost(app, action);
  add_collective(app, action);
  add_accuracy(app, action);
  add_calibrate(app, action);
  add_pipeline(app, action);
  add_check(app, action);
  add_topology(app, action);
  if (argc > 1) {
    const Errors faults = subcommand_faults(argv[1], app);
    if (!faults.empty()) return wrong_input(faults);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? kExitDone : kExitWrongInput;
  }
  try {
    return action();
  } catch (const LimitError& error) {
    return cannot(error.what());
  } catch (const std::bad_alloc&) {
    return cannot("out of memory; run with fewer --threads or a smaller study");
  }
}

}  // namespace

void end_now(int code) { std::_Exit(code); }

}  // namespace longhaul

int main(int argc, char** argv) { return longhaul::run(argc, argv); }
