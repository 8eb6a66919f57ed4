// longhaul: one binary, one subcommand a job. Each subcommand stands in its own file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <string>

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
  add_cost(app, action);
  add_pipeline(app, action);
  add_check(app, action);
  add_topology(app, action);
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
}  // namespace longhaul

int main(int argc, char** argv) { return longhaul::run(argc, argv); }
