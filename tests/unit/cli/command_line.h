// Runs the longhaul command (environment variable LONGHAUL) as a user would.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace longhaul::command_line {

struct Output {
  int code = -1;
  std::string out;
  std::string err;
};

// A folder of this test process alone, empty at first.
inline std::filesystem::path scratch() {
  static const std::filesystem::path folder = [] {
    const auto path = std::filesystem::temp_directory_path() / ("longhaul-cli-test-" + std::to_string(getpid()));
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
    return path;
  }();
  return folder;
}

inline std::string read(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::string write(const std::string& name, const std::string& text) {
  const std::filesystem::path file = scratch() / name;
  std::ofstream(file, std::ios::binary) << text;
  return name;
}

// `arguments` as a shell takes them; runs in scratch(), so relative paths are there.
inline Output longhaul(const std::string& arguments) {
  const char* binary = std::getenv("LONGHAUL");
  if (binary == nullptr) return {-1, "", "LONGHAUL is not set"};
  const std::string command = "cd '" + scratch().string() + "' && '" + binary + "' " + arguments + " >out 2>err";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read(scratch() / "out"),
          read(scratch() / "err")};
}

}  // namespace longhaul::command_line
