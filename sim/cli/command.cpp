#include "sim/cli/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <system_error>
#include <thread>

namespace longhaul {
namespace {

// What is wrong with a seed; empty if nothing. CLI11 alone takes -1 and cuts off what is too large.
std::string seed_fault(const std::string& text) {
  std::int64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc() && end == text.data() + text.size() && seed >= 0) return "";
  return fmt::format("is \"{}\"; expected an integer from 0 to {}", text, std::numeric_limits<std::int64_t>::max());
}

}  // namespace

Format GlobalOptions::format() const {
  if (format_name == "json") return Format::kJson;
  return format_name == "csv" ? Format::kCsv : Format::kTable;
}

void add_global_options(CLI::App& command, GlobalOptions& options, const std::string& example) {
  options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  command.add_option("--format", options.format_name, "table (default), json or csv")
      ->check(CLI::IsMember({"table", "json", "csv"}));
  command.add_option("--seed", options.seed, "Seed of sampled documents, in place of the study's")
      ->check(CLI::Validator(seed_fault, "0 to 9223372036854775807"));
  command.add_option("--threads", options.threads, "Threads; results do not depend on them")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command.add_flag("--quiet", options.quiet, "Say nothing but results and errors");
  command.footer("Example:\n  " + example);
}

int wrong_input(const Errors& errors) {
  // A fault of a shared file, met by every reader of it, is told once.
  std::set<std::string> told;
  for (const InputError& error : errors) {
    const std::string text = error.to_string();
    if (told.insert(text).second) fmt::print(stderr, "{}\n", text);
  }
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

void write_file(const std::string& file, const std::string& option, const std::string& text) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path path(file);
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, error)) {
    throw LimitError(fmt::format("{} cannot be written: there is no folder {}; make it, or give another file with {}",
                                 file, folder.string(), option));
  }
  if (fs::is_directory(path, error)) {
    throw LimitError(fmt::format("{} is a folder; give a file with {}", file, option));
  }
  const fs::path temporary = folder / fmt::format(".longhaul-{}.tmp", getpid());
  errno = 0;
  std::ofstream out(temporary, std::ios::binary);
  out << text;
  out.close();
  const bool written = static_cast<bool>(out);
  std::string why = written ? "" : std::strerror(errno);
  error.clear();
  if (written) fs::rename(temporary, path, error);
  if (error) why = error.message();
  if (why.empty()) return;
  fs::remove(temporary, error);
  throw LimitError(fmt::format("{} cannot be written: {}; give another file with {}", file, why, option));
}

}  // namespace longhaul
