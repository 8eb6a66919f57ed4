// What a fuzz target is: one function that takes any bytes and must neither crash, hang nor break its own promises.
//
// Each target is built twice: with `replay.cpp`, which feeds it the files of its corpus (a test like any other, any
// compiler), and, with -Dfuzz=true under clang, with libFuzzer, which looks for new ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sim/core/error.h"
#include "sim/core/invariant.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace longhaul {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// A reader that refuses its input says why: at least one error, each with something to read.
inline void require_said(const Errors& errors) {
  LH_ASSERT(!errors.empty(), "input is refused without an error: {}", errors.size());
  for (const InputError& error : errors) {
    LH_ASSERT(!error.message.empty() && !error.to_string().empty(), "an error without words at \"{}\"", error.path);
  }
}

}  // namespace longhaul
