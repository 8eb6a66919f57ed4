#include "sim/cli/output_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <set>
#include <system_error>

#include "sim/core/error.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& what, const std::string& why, const std::string& remedy) {
  throw LimitError(fmt::format("{} {}; {}", what.string(), why, remedy));
}

// The remedy that suits an error of the file system.
std::string remedy_of(const std::error_code& error) {
  if (error == std::errc::filename_too_long) return "give a shorter folder with --out";
  if (error == std::errc::no_space_on_device) return "free space or give a folder on another disk with --out";
  if (error == std::errc::permission_denied || error == std::errc::read_only_file_system) {
    return "give a folder that you may write with --out";
  }
  return "give another folder with --out";
}

void check(const std::error_code& error, const fs::path& what, const char* failed) {
  if (error) fail(what, fmt::format("{}: {}", failed, error.message()), remedy_of(error));
}

}  // namespace

OutputFolder::OutputFolder(const std::string& target) {
  target_ = fs::path(target).lexically_normal();
  if (!target_.has_filename() && target_.has_parent_path() && target_ != target_.root_path()) {
    target_ = target_.parent_path();  // "results/first/"
  }
  std::error_code error;
  const bool exists = fs::exists(target_, error);
  if (exists && !fs::is_directory(target_, error)) fail(target_, "is not a folder", "give another folder with --out");
  // Beside the target, so that the moves stay on one file system; inside it where it stands (it may be a mount point or
  // "." or the only place that is writable).
  const std::string temporary = fmt::format(".longhaul-{}.tmp", getpid());
  try {
    if (!exists) make(target_.has_parent_path() ? target_.parent_path() : fs::path("."));
    staging_ = exists ? target_ / temporary : target_.parent_path() / temporary;
    fs::create_directory(staging_, error);
    check(error, target_, "cannot be written");
    replaced_ = staging_ / "replaced";
  } catch (...) {
    for (auto made = made_.rbegin(); made != made_.rend(); ++made) fs::remove(*made, error);
    throw;
  }
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  fs::remove_all(staging_, ignored);
  if (committed_) return;
  for (auto made = made_.rbegin(); made != made_.rend(); ++made) fs::remove(*made, ignored);
}

void OutputFolder::make(const fs::path& folder) {
  std::error_code error;
  if (fs::is_directory(folder, error)) return;
  check(error == std::errc::no_such_file_or_directory ? std::error_code() : error, folder, "cannot be made");
  if (fs::exists(folder, error)) fail(folder, "is not a folder", "give another folder with --out");
  if (folder.has_parent_path()) make(folder.parent_path());
  fs::create_directory(folder, error);
  check(error, folder, "cannot be made");
  made_.push_back(folder);
}

void OutputFolder::add(const std::string& name, const std::string& text) {
  const fs::path file = staging_ / "new" / name;
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  check(error, target_, "cannot be written");
  errno = 0;
  std::ofstream out(file, std::ios::binary);
  out << text;
  out.close();
  if (!out) check(std::error_code(errno, std::generic_category()), target_ / name, "cannot be written");
  names_.emplace_back(name);
}

void OutputFolder::move_all(std::vector<fs::path>& moved) {
  std::error_code error;
  for (const fs::path& name : names_) {
    const fs::path file = target_ / name;
    make(file.parent_path());
    if (fs::is_directory(file, error)) fail(file, "is a folder", "remove it or give another folder with --out");
    if (fs::exists(file, error)) {
      fs::create_directories((replaced_ / name).parent_path(), error);
      check(error, file, "cannot be replaced");
      fs::rename(file, replaced_ / name, error);
      check(error, file, "cannot be replaced");
    }
    moved.push_back(name);
    fs::rename(staging_ / "new" / name, file, error);
    check(error, file, "cannot be written");
  }
}

void OutputFolder::commit() {
  std::vector<fs::path> moved;
  try {
    move_all(moved);
  } catch (...) {
    std::error_code ignored;
    for (const fs::path& name : moved) {
      fs::remove(target_ / name, ignored);
      if (fs::exists(replaced_ / name, ignored)) fs::rename(replaced_ / name, target_ / name, ignored);
    }
    throw;
  }
  committed_ = true;
}

void probe_output_folder(const std::string& target) { const OutputFolder probe(target); }

std::string plain_file_name(const std::string& text) {
  constexpr std::size_t kLongest = 180;
  std::string name = text.substr(0, kLongest);
  for (char& c : name) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
    if (!plain) c = '_';
  }
  if (name.empty()) return "_";
  if (name.front() == '.') name.front() = '_';
  return name;
}

std::string unused_json_file(const std::string& folder, const std::string& name) {
  const fs::path path(folder);
  fs::path file = path / (name + ".json");
  for (int i = 2; fs::exists(file); ++i) file = path / fmt::format("{}-{}.json", name, i);
  return file.string();
}

std::vector<std::string> unique_file_names(const std::vector<std::string>& texts) {
  std::set<std::string> taken;
  std::vector<std::string> names;
  for (const std::string& text : texts) {
    const std::string plain = plain_file_name(text);
    std::string name = plain;
    for (int i = 2; !taken.insert(name).second; ++i) name = fmt::format("{}-{}", plain, i);
    names.push_back(name);
  }
  return names;
}

}  // namespace longhaul
