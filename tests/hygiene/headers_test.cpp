// Meson compiles each header alone (target `headers` in meson.build). Here: it saw every header that exists now.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/hygiene/source_tree.h"

namespace longhaul::hygiene {
namespace {

#ifdef LH_WITH_KERNELS
constexpr bool kWithKernels = true;
#else
constexpr bool kWithKernels = false;
#endif

#ifdef LH_WITH_NCCL
constexpr bool kWithNccl = true;
#else
constexpr bool kWithNccl = false;
#endif

bool compiled_alone(const SourceFile& file) {
  const auto in = [&](std::string_view folder) { return file.path.starts_with(folder); };
  return file.path.ends_with(".h") && (kWithNccl || !in("validate/gpu/")) &&
         (in("sim/") || in("validate/") || in("reports/") || (kWithKernels && in("kernels/")));
}

TEST(Headers, EachOneWasCompiledAlone) {
  EXPECT_EQ(std::count_if(source_tree().begin(), source_tree().end(), compiled_alone), LH_HEADER_PROGRAMS)
      << "a header came or went since Meson last looked: run `meson setup --reconfigure build`";
}

}  // namespace
}  // namespace longhaul::hygiene
