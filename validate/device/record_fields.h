// Fields of a run record in JSON: names of its enumerations, and whole numbers, text and flags that have to be there.
//
// Each reader marks its key as known; a value that is absent, of another type or out of range adds an error and gives
// the least value that is allowed, so that reading goes on.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/json.h"
#include "validate/device/run_record.h"

namespace longhaul {

// By value of the enumeration, as records write them.
const std::vector<std::string>& op_kind_names();
const std::vector<std::string>& pass_names();
const std::vector<std::string>& function_names();
const std::vector<std::string>& collective_names();
const std::vector<std::string>& placement_names();

Json hardware_json(const HardwareInfo& of);

template <class Enum>
const std::string& name_in(const std::vector<std::string>& names, Enum value) {
  return names[static_cast<std::size_t>(value)];
}

template <class Enum>
Enum required_name(JsonReader& in, std::string_view key, const std::vector<std::string>& names) {
  const std::string name = in.required_choice(key, names).value_or(names.front());
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return Enum{};
}

template <class T>
T required_whole(JsonReader& in, std::string_view key, std::int64_t low) {
  return static_cast<T>(in.required_integer(key, low, std::numeric_limits<T>::max()).value_or(low));
}

std::string required_text(JsonReader& in, std::string_view key);
bool required_flag(JsonReader& in, std::string_view key);

// Calls `item` with a reader of each object of a required list; an item that is no object is the reader's error.
void each_object(JsonReader& in, std::string_view key, const std::function<void(JsonReader&)>& item);

// nullopt: not a whole number, or beyond 64 bits with sign.
std::optional<std::int64_t> whole_number(const Json& value);

}  // namespace longhaul
