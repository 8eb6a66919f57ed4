// A running 64-bit FNV-1a hash over integers and text: names a configuration or a trajectory. Not cryptographic.
#pragma once

#include <cstdint>
#include <string_view>

namespace longhaul {

class Fingerprint {
 public:
  void add(std::string_view text) {
    for (const char c : text) add_byte(static_cast<unsigned char>(c));
    add_byte(0xff);  // so that ("ab","c") and ("a","bc") differ
  }
  void add(std::int64_t value) {
    for (int shift = 0; shift < 64; shift += 8) {
      add_byte(static_cast<unsigned char>(static_cast<std::uint64_t>(value) >> shift));
    }
  }
  std::uint64_t value() const { return state_; }

 private:
  void add_byte(unsigned char byte) {
    state_ ^= byte;
    state_ *= 0x100000001b3ULL;
  }
  std::uint64_t state_ = 0xcbf29ce484222325ULL;
};

}  // namespace longhaul
