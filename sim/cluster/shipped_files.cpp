#include "sim/cluster/shipped_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace longhaul {

std::vector<std::string> shipped_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::filesystem::path& file = entry.path();
    if (file.extension() != ".json" || file.stem().extension() == ".schema") continue;
    names.push_back(file.stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool is_path(const std::string& name_or_path) {
  return name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json");
}

Expected<std::string> find_shipped(std::string_view kind, const std::string& name_or_path, const std::string& folder,
                                   const std::string& file, const std::string& path) {
  if (is_path(name_or_path)) {
    if (std::filesystem::is_regular_file(name_or_path)) return name_or_path;
    return tl::unexpected(
        Errors{{file, path, fmt::format("\"{}\" is not a file", name_or_path), fmt::format("a {} file", kind), ""}});
  }
  const std::vector<std::string> names = shipped_names(folder);
  if (std::find(names.begin(), names.end(), name_or_path) != names.end()) {
    return fmt::format("{}/{}.json", folder, name_or_path);
  }
  return tl::unexpected(Errors{{file, path, fmt::format("\"{}\" is not a shipped {}", name_or_path, kind),
                                fmt::format("one of {}, or a path to a file", fmt::join(names, ", ")),
                                nearest_name(name_or_path, names)}});
}

}  // namespace longhaul
