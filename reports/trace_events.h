// The pieces that Chrome traces are written with: a list of events, JSON strings, microseconds exact to the picosecond.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

namespace longhaul {

// Writes events as the elements of a JSON list, one a line; nothing is held back but the current one.
class TraceEvents {
 public:
  explicit TraceEvents(std::ostream& out) : out_(out) {}
  void add(const std::string& event) {
    out_ << (first_ ? "\n" : ",\n") << event;
    first_ = false;
  }
  // The name of a process (a rank), and that processes stand in the order of their numbers.
  void name_process(std::int64_t process, std::string_view name);
  // The same of a thread (a stream) of a process.
  void name_thread(std::int64_t process, std::int64_t thread, std::string_view name);

 private:
  std::ostream& out_;
  bool first_ = true;
};

// A JSON string literal; bytes that are no UTF-8 are replaced.
std::string trace_string(std::string_view text);

// Picoseconds as microseconds: all six decimals, so nothing is lost.
std::string trace_microseconds(std::int64_t ps);

}  // namespace longhaul
