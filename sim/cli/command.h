// What all subcommands share: global options, exit codes, and how errors and files leave the command.
//
// Results go to standard output, talk to standard error. Files are written whole or not at all.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "sim/core/error.h"
#include "sim/core/json.h"

namespace longhaul {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;      // done, and a gate or verification failed
inline constexpr int kExitWrongInput = 2;  // every error is listed
inline constexpr int kExitCannot = 3;      // no GPU, does not fit, limit reached

enum class Format { kTable, kJson, kCsv };

struct GlobalOptions {
  std::string format_name;           // empty: a table
  std::optional<std::int64_t> seed;  // replaces documents.seed
  int threads = 1;
  bool quiet = false;

  Format format() const;
};

// Adds --format, --seed, --threads and --quiet, and the example that --help ends with.
void add_global_options(CLI::App& command, GlobalOptions& options, const std::string& example);

// What the chosen subcommand does; returns the exit code. Set by the callback of a subcommand.
using Action = std::function<int()>;

// Each adds one subcommand; its parsed options live as long as `action`.
void add_compare(CLI::App& app, Action& action);
void add_simulate(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);
void add_validate(CLI::App& app, Action& action);
void add_check(CLI::App& app, Action& action);
void add_topology(CLI::App& app, Action& action);
void add_pipeline(CLI::App& app, Action& action);
void add_cost(CLI::App& app, Action& action);
void add_collective(CLI::App& app, Action& action);
void add_accuracy(CLI::App& app, Action& action);
void add_calibrate(CLI::App& app, Action& action);

// Prints every error to standard error; returns kExitWrongInput.
int wrong_input(const Errors& errors);
// One line to standard error; returns kExitCannot.
int cannot(const std::string& line);
// Ends the process without destructors, from any thread: others may hang in a library.
[[noreturn]] void end_now(int code);
// To standard output, flushed.
void print(const std::string& text);
// A line to standard error unless --quiet.
void say(const GlobalOptions& options, const std::string& line);

// Writes to a temporary name beside `file`, then renames. `option` is what named the file. Throws LimitError if it
// cannot, also where the folder does not exist.
void write_file(const std::string& file, const std::string& option, const std::string& text);

}  // namespace longhaul
