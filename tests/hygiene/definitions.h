// What the C++ files define at namespace scope with external linkage, and what is defined twice.
//
// The command links sim/, validate/, reports/ and, with CUDA, kernels/ into one program: two types of one name, or two
// inline functions of one signature, are then one symbol to the linker, which keeps either (the one-definition rule;
// no compiler or linker says so). Names in anonymous namespaces, static functions and files' own constants are free.
//
// The scanner reads text: it knows comments, strings, namespaces, braces and parameter lists, not macros. It does not
// look into types and function bodies, nor at members defined outside of their type, whose type it finds. Of code that
// the preprocessor chooses it sees every branch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/hygiene/rules.h"

namespace longhaul::hygiene {

struct Definition {
  enum class Kind : std::uint8_t { kType, kFunction, kVariable };

  Kind kind = Kind::kType;
  // Qualified. A function has its parameters' types behind it, "longhaul::area(const Box&)", a specialisation its
  // arguments, "std::hash<longhaul::Box>".
  std::string name;
  std::string path;
  std::int64_t line = 0;  // of the name, from 1
};

// The definitions of one file, in order. Types (class, struct, union, enum, concept), functions and inline variables.
std::vector<Definition> external_definitions(const SourceFile& file);

// Names that more than one file of sim/, kernels/, validate/ or reports/ defines: one finding at each place but the
// first, which the message names. main() is not one; neither is what one file defines twice, for the compiler sees
// that.
Findings check_one_definition(const std::vector<SourceFile>& files);

}  // namespace longhaul::hygiene
