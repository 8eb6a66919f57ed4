#include "tests/hygiene/source_tree.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>

namespace longhaul::hygiene {
namespace {

namespace fs = std::filesystem;

// Top-level entries that ship. A new one is added here, so that nothing ships unread.
constexpr std::array kShipped = {".ci",       "dev", "docs",    "kernels", "meson.build", "meson_options.txt",
                                 "README.md", "sim", "reports", "tests",   "topologies",  "validate",
                                 "workloads"};
constexpr std::array kText = {".h",    ".cpp", ".cu",   ".cuh", ".py",    ".sh",  ".js",  ".mjs", ".css",
                              ".html", ".md",  ".json", ".csv", ".build", ".txt", ".yml", ".svg"};

bool is_text(const fs::path& path) {
  if (path.filename() == "dev" || path.parent_path().filename() == ".ci") return true;
  return std::find(kText.begin(), kText.end(), path.extension().string()) != kText.end();
}

SourceFile read_file(const fs::path& root, const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  SourceFile file{fs::relative(path, root).generic_string(), ""};
  file.text.assign(std::istreambuf_iterator<char>(stream), {});
  return file;
}

}  // namespace

std::vector<SourceFile> read_source_tree(const std::string& root) {
  if (!fs::exists(fs::path(root) / "sim/core/invariant.h")) {
    throw std::runtime_error("not Longhaul's source tree: \"" + root + "\"");
  }
  std::vector<SourceFile> files;
  for (const std::string_view name : kShipped) {
    const fs::path top = fs::path(root) / name;
    if (fs::is_regular_file(top)) files.push_back(read_file(root, top));
    if (!fs::is_directory(top)) continue;
    for (auto it = fs::recursive_directory_iterator(top); it != fs::recursive_directory_iterator(); ++it) {
      const std::string entry = it->path().filename().string();
      if (it->is_directory() && (entry == "node_modules" || entry == "__pycache__")) it.disable_recursion_pending();
      if (it->is_regular_file() && is_text(it->path())) files.push_back(read_file(root, it->path()));
    }
  }
  std::sort(files.begin(), files.end(), [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

const std::vector<SourceFile>& source_tree() {
  static const std::vector<SourceFile> kTree = [] {
    const char* root = std::getenv("LONGHAUL_SOURCE_ROOT");
    return read_source_tree(root == nullptr ? "" : root);
  }();
  return kTree;
}

}  // namespace longhaul::hygiene
