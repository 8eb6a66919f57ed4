#include "sim/core/data_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "sim/core/printable.h"

#ifndef LONGHAUL_SOURCE_ROOT
#error "the build must define LONGHAUL_SOURCE_ROOT, the directory that holds topologies/ and workloads/"
#endif

namespace longhaul {
namespace {

namespace fs = std::filesystem;

struct KindFiles {
  std::string_view name;
  std::string_view folder;
  std::string_view ending;
};

KindFiles kind_files(DataKind kind) {
  switch (kind) {
    case DataKind::kTopology:
      return {"topology", "topologies", ".json"};
    case DataKind::kDevice:
      return {"device", "topologies/devices", ".json"};
    case DataKind::kModel:
      return {"model", "workloads/models", ".json"};
    case DataKind::kLengths:
      return {"length table", "workloads/lengths", ".csv"};
    case DataKind::kStudy:
      return {"study", "workloads/studies", ".json"};
  }
  return {};
}

// JSON Schemas stand beside the data of some kinds, and the constants of NCCL's time model beside the topologies.
bool is_other(std::string_view stem) { return stem.ends_with(".schema") || stem.starts_with("nccl"); }

}  // namespace

std::string_view data_kind_name(DataKind kind) { return kind_files(kind).name; }

std::string data_directory() {
  const char* chosen = std::getenv("LONGHAUL_DATA");
  return chosen != nullptr && *chosen != '\0' ? chosen : LONGHAUL_SOURCE_ROOT;
}

std::optional<InputError> missing_data_folder(const std::string& file, const std::string& path,
                                              const std::string& directory) {
  std::error_code ignored;
  const fs::path folder = directory;
  const bool is_there = fs::is_directory(folder, ignored);
  if (fs::is_directory(folder / "topologies", ignored) || fs::is_directory(folder / "workloads", ignored)) {
    return std::nullopt;
  }
  return InputError{file, path,
                    fmt::format("the data folder {} {}", folder.string(),
                                is_there ? "holds neither topologies/ nor workloads/" : "is missing"),
                    "the environment variable LONGHAUL_DATA to name the folder that holds topologies/ and workloads/",
                    ""};
}

std::optional<std::string> find_data_file(DataKind kind, std::string_view name, const std::string& directory) {
  if (name.empty() || name.find('/') != std::string_view::npos || is_other(name)) return std::nullopt;
  const KindFiles files = kind_files(kind);
  const fs::path file = fs::path(directory) / files.folder / (std::string(name) + std::string(files.ending));
  std::error_code ignored;  // an unreadable folder holds no data file
  if (!fs::is_regular_file(file, ignored)) return std::nullopt;
  return file.string();
}

std::vector<std::string> list_data_names(DataKind kind, const std::string& directory) {
  const KindFiles files = kind_files(kind);
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator entry(fs::path(directory) / files.folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const fs::path& path = entry->path();
    const std::string stem = path.stem().string();
    std::error_code ignored;
    const bool is_file = fs::is_regular_file(path, ignored);
    if (is_file && path.extension() == files.ending && !is_other(stem)) names.push_back(stem);
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool is_data_path(DataKind kind, std::string_view reference) {
  return reference.find('/') != std::string_view::npos || reference.ends_with(kind_files(kind).ending);
}

std::string relative_to_file(std::string_view path, std::string_view from_file) {
  const fs::path folder = fs::path(from_file).parent_path();
  return folder.empty() ? std::string(path) : (folder / fs::path(path)).lexically_normal().string();
}

std::optional<std::string> resolve_data_file(DataKind kind, const std::string& reference, const std::string& file,
                                             const std::string& path, Errors& errors, const std::string& directory) {
  if (is_data_path(kind, reference)) return relative_to_file(reference, file);
  std::optional<std::string> found = find_data_file(kind, reference, directory);
  if (!found) {
    if (const std::optional<InputError> missing = missing_data_folder(file, path, directory)) {
      errors.push_back(*missing);
      return found;
    }
    const std::vector<std::string> names = list_data_names(kind, directory);
    errors.push_back({file, path, fmt::format("unknown {} \"{}\"", data_kind_name(kind), echoed(reference)),
                      names.empty() ? "a path" : fmt::format("one of {}, or a path", fmt::join(names, ", ")),
                      nearest_name(reference, names)});
  }
  return found;
}

Expected<std::string> read_input_file(const std::string& file, std::string_view expected) {
  const auto fault = [&](std::string message, std::string wanted) {
    return tl::unexpected(Errors{{file, "", std::move(message), std::move(wanted), ""}});
  };
  const std::string too_large = fmt::format("at most {} MiB", kMaxInputBytes >> 20);
  std::error_code failed;  // a file that cannot be looked at cannot be opened either
  const fs::file_status status = fs::status(file, failed);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    return fault("is not a regular file", std::string(expected));
  }
  const std::uintmax_t size = fs::file_size(file, failed);
  if (!failed && size > static_cast<std::uintmax_t>(kMaxInputBytes)) return fault("is too large", too_large);
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return fault("cannot be read", std::string(expected));
  // Read to the end: the size that the system names is 0 for some files that hold text, and may change.
  constexpr std::size_t kChunk = std::size_t{1} << 20;
  std::string text;
  while (stream) {
    const std::size_t before = text.size();
    text.resize(before + kChunk);
    stream.read(text.data() + before, static_cast<std::streamsize>(kChunk));
    text.resize(before + static_cast<std::size_t>(stream.gcount()));
    if (static_cast<std::int64_t>(text.size()) > kMaxInputBytes) return fault("is too large", too_large);
  }
  if (stream.bad()) return fault("cannot be read", std::string(expected));
  return text;
}

std::optional<std::string> read_text_file(const std::string& file) {
  Expected<std::string> text = read_input_file(file, "");
  return text ? std::optional(std::move(*text)) : std::nullopt;
}

}  // namespace longhaul
