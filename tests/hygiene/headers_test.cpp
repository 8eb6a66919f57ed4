// Meson compiles each header alone (target `headers` in meson.build). Here: it saw every header that exists now.

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/algorithm/string.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tests/hygiene/source_tree.h"

namespace longhaul::hygiene {
namespace {

// The folders whose headers Meson compiles; one after a minus is left out: what it needs is not on this machine.
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

TEST(Headers, EachOneWasCompiledAlone) {
  EXPECT_EQ(std::count_if(source_tree().begin(), source_tree().end(), compiled_alone), LH_HEADER_PROGRAMS)
      << "a header came or went since Meson last looked: run `meson setup --reconfigure build`";
}

}  // namespace
}  // namespace longhaul::hygiene
