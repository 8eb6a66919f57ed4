// Meson compiles each header alone (target `headers` in meson.build), but for those that their own .cpp includes before
// anything else, which proves the same. Here: it saw every header that exists now, and no other.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/algorithm/string.hpp>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/hygiene/source_tree.h"

namespace longhaul::hygiene {
namespace {

// The folders whose headers Meson compiles; one after a minus is left out: what it needs is not on this
// machine. The files of one after a plus are compiled several at once.
constexpr std::string_view kFolders = LH_HEADER_FOLDERS;

bool compiled_alone(const SourceFile& file) {
  if (!file.path.ends_with(".h")) return false;
  std::vector<std::string> folders;
  boost::split(folders, kFolders, boost::is_any_of(" "));
  const auto holds = [&](std::string_view folder) { return file.path.starts_with(std::string(folder) + "/"); };
  const bool wanted = std::any_of(folders.begin(), folders.end(), holds);
  return wanted && std::none_of(folders.begin(), folders.end(), [&](const std::string& folder) {
           return folder.starts_with("-") && holds(folder.substr(1));
         });
}

const SourceFile* file_at(const std::string& path) {
  const auto at = std::find_if(source_tree().begin(), source_tree().end(),
                               [&](const SourceFile& file) { return file.path == path; });
  return at == source_tree().end() ? nullptr : &*at;
}

// Named by the meson.build of its folder or of one above it.
bool built(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1) + "'";
  for (std::size_t end = path.rfind('/'); end != std::string::npos;
       end = end == 0 ? end - 1 : path.rfind('/', end - 1)) {
    const SourceFile* list = file_at(path.substr(0, end) + "/meson.build");
    if (list == nullptr) continue;
    for (const char before : {'\'', '/'}) {
      if (list->text.find(before + name) != std::string::npos) return true;
    }
  }
  return false;
}

// The header's own .cpp is built and includes it before anything else.
bool proven(const SourceFile& header) {
  const std::string source = header.path.substr(0, header.path.size() - 1) + "cpp";
  const SourceFile* file = file_at(source);
  if (file == nullptr || !built(source)) return false;
  const std::size_t first = ("\n" + file->text).find("\n#include ");
  return first != std::string::npos &&
         file->text.compare(first, header.path.size() + 11, "#include \"" + header.path + "\"") == 0;
}

// Its own .cpp is compiled behind others, so it proves nothing.
bool among_several(const SourceFile& header) {
  std::vector<std::string> folders;
  boost::split(folders, kFolders, boost::is_any_of(" "));
  return std::any_of(folders.begin(), folders.end(), [&](const std::string& folder) {
    return folder.starts_with("+") && header.path.starts_with(folder.substr(1) + "/");
  });
}

TEST(Headers, EachOneWasCompiledAlone) {
  std::vector<std::string> wanted, compiled;
  for (const SourceFile& file : source_tree()) {
    if (compiled_alone(file) && (among_several(file) || !proven(file))) wanted.push_back(file.path);
  }
  std::ifstream list(LH_HEADER_LIST);
  for (std::string header; std::getline(list, header);) compiled.push_back(header);
  EXPECT_THAT(compiled, testing::UnorderedElementsAreArray(wanted))
      << "a header came or went since Meson last looked: run `meson setup --reconfigure build`";
}

}  // namespace
}  // namespace longhaul::hygiene
