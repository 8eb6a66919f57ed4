#include "sim/cli/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>

namespace longhaul {

Format GlobalOptions::format() const {
  if (format_name == "json") return Format::kJson;
  return format_name == "csv" ? Format::kCsv : Format::kTable;
}

void add_global_options(CLI::App& command, GlobalOptions& options, const std::string& example) {
  options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  command.add_option("--format", options.format_name, "table (default), json or csv")
      ->check(CLI::IsMember({"table", "json", "csv"}));
  command.add_option("--seed", options.seed, "Seed of the documents, in place of the study's");
  command.add_option("--threads", options.threads, "Threads; results do not depend on them")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command.add_flag("--quiet", options.quiet, "Say nothing but results and errors");
  command.footer("Example:\n  " + example);
}

int wrong_input(const Errors& errors) {
  for (const InputError& error : errors) fmt::print(stderr, "{}\n", error.to_string());
  return kExitWrongInput;
}

int cannot(const std::string& line) {
  fmt::print(stderr, "longhaul: {}\n", line);
  return kExitCannot;
}

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw LimitError(fmt::format("standard output cannot be written: {}", std::strerror(errno)));
  }
}

void say(const GlobalOptions& options, const std::string& line) {
  if (!options.quiet) fmt::print(stderr, "{}\n", line);
}

void write_file(const std::string& file, const std::string& text) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path path(file);
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  if (error) throw LimitError(fmt::format("{} cannot be made: {}", path.parent_path().string(), error.message()));
  const std::string temporary = fmt::format("{}.{}.tmp", file, getpid());
  std::ofstream out(temporary, std::ios::binary);
  out << text;
  out.close();
  if (out) fs::rename(temporary, path, error);
  if (!out || error) {
    const std::string why = error ? error.message() : std::strerror(errno);
    fs::remove(temporary, error);
    throw LimitError(fmt::format("{} cannot be written: {}; give another folder with --out", file, why));
  }
}

}  // namespace longhaul
