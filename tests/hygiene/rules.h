// The rules that every source file of Longhaul obeys, as pure functions over file contents, so that the tests can plant
// faults in files that exist only in memory.
//
// A rule looks at text, not at parsed C++: comments and string literals are blanked out first where a rule is about
// code. What a rule cannot see (an include behind a macro, a type behind an alias) it does not find.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul::hygiene {

struct SourceFile {
  std::string path;  // from the root of the repository, with '/'
  std::string text;
};

struct Finding {
  std::string path;
  std::int64_t line = 0;  // from 1; 0 for the whole file
  std::string message;

  std::string to_string() const;  // "PATH:LINE: MESSAGE"
};

using Findings = std::vector<Finding>;

// The rooms, in the order of the design: a folder includes only folders listed above it, and itself.
const std::vector<std::string>& rooms();

// C++ with comments, string and character literals replaced by spaces; line breaks stay where they are.
std::string blank_comments_and_strings(std::string_view text);

bool is_cpp(const SourceFile& file);     // .h .cpp .cu .cuh
bool is_header(const SourceFile& file);  // .h .cuh
// Everything that a person writes and reviews as code, vendored files excepted.
bool is_code(const SourceFile& file);

// Include order of the rooms; strategies see of the cost model only sim/cost/estimate.h; the executor sees no strategy
// and no scenario; quoted includes are written from the root.
Findings check_includes(const SourceFile& file);

// At most 600 lines of at most 120 columns (code points), no tabs, no trailing blanks, a final newline.
Findings check_layout(const SourceFile& file);

// A header opens with a comment and has `#pragma once`.
Findings check_header(const SourceFile& file);

// What would make a result depend on something else than its input: unordered containers and pointer keys in sim/
// (allowed with a reason: `// unordered: WHY` on the line), clocks and std distributions in sim/ (the command may show
// time), exp, log and pow where simulated time is made.
Findings check_determinism(const SourceFile& file);

// exit() only in a file that has main().
Findings check_exit(const SourceFile& file);

// No absolute path of a developer's machine in any text.
Findings check_machine_paths(const SourceFile& file);

// Every source file under tests/ and every *_test.cpp is named in the meson.build of its folder or of one above it.
Findings check_tests_registered(const std::vector<SourceFile>& files);

}  // namespace longhaul::hygiene
