#include "sim/core/json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "sim/core/data_files.h"

namespace longhaul {

std::string describe(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  return value.dump();
}

Expected<Json> parse_json(std::string_view text, const std::string& file) {
  Errors errors;
  std::vector<std::set<std::string>> keys;
  const auto refuse_duplicates = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      errors.push_back({file, "", fmt::format("key {} stands twice in one object", parsed.dump()), "", ""});
    }
    return true;
  };
  try {
    Json value = Json::parse(text.begin(), text.end(), refuse_duplicates);
    if (!errors.empty()) return tl::unexpected(errors);
    return value;
  } catch (const Json::parse_error& error) {
    errors.push_back({file, "", error.what(), "JSON", ""});
    return tl::unexpected(errors);
  }
}

Expected<Json> read_json_file(const std::string& file) {
  const std::optional<std::string> text = read_text_file(file);
  if (!text) {
    return tl::unexpected(Errors{{file, "", "cannot be read", "a JSON file", ""}});
  }
  return parse_json(*text, file);
}

JsonReader::JsonReader(const Json& value, std::string file, std::string path, Errors& errors)
    : value_(value.is_object() ? &value : nullptr), file_(std::move(file)), path_(std::move(path)), errors_(&errors) {
  if (value_ == nullptr) {
    errors_->push_back({file_, path_, fmt::format("is {}", describe(value)), "an object", ""});
  }
}

std::string JsonReader::child_path(std::string_view key) const { return fmt::format("{}/{}", path_, key); }

void JsonReader::add_error(std::string_view key, std::string message, std::string expected, std::string nearest) {
  errors_->push_back({file_, child_path(key), std::move(message), std::move(expected), std::move(nearest)});
}

bool JsonReader::has(std::string_view key) { return find(key) != nullptr; }

const Json* JsonReader::find(std::string_view key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.emplace_back(key);
  if (value_ == nullptr) return nullptr;
  const auto found = value_->find(std::string(key));
  return found == value_->end() ? nullptr : &*found;
}

const Json* JsonReader::required(std::string_view key, std::string_view expected) {
  const Json* found = find(key);
  if (found == nullptr && value_ != nullptr) add_error(key, "is missing", std::string(expected));
  return found;
}

std::optional<std::int64_t> JsonReader::integer(std::string_view key, std::int64_t low, std::int64_t high) {
  const Json* found = find(key);
  if (found == nullptr) return std::nullopt;
  const bool too_big = found->is_number_unsigned() && found->get<std::uint64_t>() > static_cast<std::uint64_t>(high);
  if (!found->is_number_integer() || too_big || found->get<std::int64_t>() < low || found->get<std::int64_t>() > high) {
    add_error(key, fmt::format("is {}", describe(*found)), fmt::format("an integer from {} to {}", low, high));
    return std::nullopt;
  }
  return found->get<std::int64_t>();
}

std::optional<double> JsonReader::number(std::string_view key, double low, double high) {
  const Json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_number() || found->get<double>() < low || found->get<double>() > high) {
    add_error(key, fmt::format("is {}", describe(*found)), fmt::format("a number from {} to {}", low, high));
    return std::nullopt;
  }
  return found->get<double>();
}

std::optional<bool> JsonReader::boolean(std::string_view key) {
  const Json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_boolean()) {
    add_error(key, fmt::format("is {}", describe(*found)), "true or false");
    return std::nullopt;
  }
  return found->get<bool>();
}

std::optional<std::string> JsonReader::string(std::string_view key) {
  const Json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_string()) {
    add_error(key, fmt::format("is {}", describe(*found)), "a string");
    return std::nullopt;
  }
  return found->get<std::string>();
}

std::optional<std::string> JsonReader::choice(std::string_view key, const std::vector<std::string>& names) {
  const std::optional<std::string> text = string(key);
  if (!text) return std::nullopt;
  if (std::find(names.begin(), names.end(), *text) == names.end()) {
    add_error(key, fmt::format("is \"{}\"", *text), fmt::format("one of {}", fmt::join(names, ", ")),
              nearest_name(*text, names));
    return std::nullopt;
  }
  return text;
}

std::optional<std::int64_t> JsonReader::required_integer(std::string_view key, std::int64_t low, std::int64_t high) {
  if (required(key, fmt::format("an integer from {} to {}", low, high)) == nullptr) return std::nullopt;
  return integer(key, low, high);
}

std::optional<double> JsonReader::required_number(std::string_view key, double low, double high) {
  if (required(key, fmt::format("a number from {} to {}", low, high)) == nullptr) return std::nullopt;
  return number(key, low, high);
}

std::optional<std::string> JsonReader::required_string(std::string_view key) {
  if (required(key, "a string") == nullptr) return std::nullopt;
  return string(key);
}

std::optional<std::string> JsonReader::required_choice(std::string_view key, const std::vector<std::string>& names) {
  if (required(key, fmt::format("one of {}", fmt::join(names, ", "))) == nullptr) return std::nullopt;
  return choice(key, names);
}

void JsonReader::finish() {
  if (value_ == nullptr) return;
  for (const auto& [key, unused] : value_->items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    const std::string nearest = nearest_name(key, known_);
    add_error(key, "unknown key", nearest.empty() ? fmt::format("one of {}", fmt::join(known_, ", ")) : "", nearest);
  }
}

}  // namespace longhaul
