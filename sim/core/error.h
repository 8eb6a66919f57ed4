// Errors of the user's input and limits of the model. Bugs in Longhaul itself are LH_ASSERT (sim/core/invariant.h).
//
// Wrong input is collected, never thrown at the first fault: readers append to an `Errors` and return
// `Expected<T>`; the command prints all of them and exits 2.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

namespace longhaul {

// One fault in an input file or on the command line.
struct InputError {
  std::string file;      // as the user named it; "<command line>" for options
  std::string path;      // JSON pointer ("/documents/lengths"), or "line 12" in a text file; empty for the whole file
  std::string message;   // what is wrong, with the value as given
  std::string expected;  // what would be right; empty when the message says it
  std::string nearest;   // nearest valid name, empty if none is near
  // Where another file names this one ("study.json: /model"); empty if the user named it.
  std::string named_at = {};

  // "FILE: PATH: MESSAGE; expected EXPECTED; did you mean "NEAREST"? (named at NAMED_AT)", control characters escaped.
  std::string to_string() const;
};

using Errors = std::vector<InputError>;

// Of one list or table: a wrong file has a fault in every line.
inline constexpr std::size_t kMaxFaults = 20;

void append(Errors& errors, const Errors& more);

// Says of every error from index `first` on that lies in another file than `file` that `path` of `file` names it,
// unless it says so already.
void set_named_at(Errors& errors, std::size_t first, const std::string& file, const std::string& path);

template <class T>
using Expected = tl::expected<T, Errors>;

// A limit reached: no GPU, does not fit, event cap, deadlock in a user-made schedule. The command exits 3 and
// prints the one line, which names the remedy.
class LimitError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The shortest member of `names` that begins with `name` (of at least 3 characters); else the one with the least edit
// distance to it, if that distance is at most 2 or a third of the length of `name`; empty otherwise. Ties go to the
// first.
std::string nearest_name(std::string_view name, const std::vector<std::string>& names);

}  // namespace longhaul
