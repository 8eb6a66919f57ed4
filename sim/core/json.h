// Reading JSON files so that every fault is reported at once, each with file and JSON pointer.
//
// `JsonReader` wraps one object of a file. A reader asks for each key it knows; `finish` reports the keys nobody asked
// for, with the nearest known one. Values of the wrong type or out of range add an InputError and yield nothing, so a
// reader goes on to the next key.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.h"

namespace longhaul {

using Json = nlohmann::ordered_json;

// Reads and parses a file. Errors: an unreadable file; a syntax error and a number beyond the doubles, each with line
// and column; a key that stands twice in one object, with its JSON pointer.
Expected<Json> read_json_file(const std::string& file);
Expected<Json> parse_json(std::string_view text, const std::string& file);

class JsonReader {
 public:
  // `value` must outlive the reader. If it is not an object, an error is added and every key is absent.
  JsonReader(const Json& value, std::string file, std::string path, Errors& errors);

  const std::string& file() const { return file_; }
  const std::string& path() const { return path_; }
  Errors& errors() { return *errors_; }
  bool has(std::string_view key);  // marks the key as known

  // The raw value or nullptr; marks the key as known. `required` adds an error if it is absent.
  const Json* find(std::string_view key);
  const Json* required(std::string_view key, std::string_view expected);

  // Each: marks the key known, type- and range-checks, adds an error on a fault. nullopt if absent or faulty.
  std::optional<std::int64_t> integer(std::string_view key, std::int64_t low, std::int64_t high);
  std::optional<double> number(std::string_view key, double low, double high);
  std::optional<bool> boolean(std::string_view key);
  std::optional<std::string> string(std::string_view key);
  // A string out of a closed set; a fault lists the set and the nearest member.
  std::optional<std::string> choice(std::string_view key, const std::vector<std::string>& names);
  // As above, but absence is an error.
  std::optional<std::int64_t> required_integer(std::string_view key, std::int64_t low, std::int64_t high);
  std::optional<double> required_number(std::string_view key, double low, double high);
  std::optional<std::string> required_string(std::string_view key);
  std::optional<std::string> required_choice(std::string_view key, const std::vector<std::string>& names);

  void add_error(std::string_view key, std::string message, std::string expected = "", std::string nearest = "");
  std::string child_path(std::string_view key) const;
  // Reports every key that was never asked for. Call last; not for files that may hold keys of others.
  void finish();

 private:
  const Json* value_;  // nullptr if not an object
  std::string file_;
  std::string path_;
  Errors* errors_;
  std::vector<std::string> known_;
};

// How a value is named in error texts: `"wlb"`, `-3`, `an object`. Long strings are cut (see `echoed`).
std::string describe(const Json& value);
// Calls body(element, its JSON pointer) for the elements of an array; what is none is an error.
void for_each_element(const Json& array, const std::string& file, const std::string& path, const char* of,
                      Errors& errors, const std::function<void(const Json&, const std::string&)>& body);

}  // namespace longhaul
