#include "sim/core/json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "sim/core/data_files.h"
#include "sim/core/printable.h"

namespace longhaul {

namespace {

// Finds the keys that stand twice in one object, each with its JSON pointer, while the parser goes through the text.
class DuplicateKeys {
 public:
  DuplicateKeys(const std::string& file, Errors& errors) : file_(&file), errors_(&errors) {}

  void see(Json::parse_event_t event, const Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        open_.push_back({event == Json::parse_event_t::array_start, 0, "", {}});
        return;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end:
        open_.pop_back();
        break;
      case Json::parse_event_t::key:
        see_key(parsed.get<std::string>());
        return;
      case Json::parse_event_t::value:
        break;
    }
    if (!open_.empty()) ++open_.back().index;
  }

 private:
  struct Open {
    bool is_array = false;
    std::size_t index = 0;  // of the value that comes next
    std::string key;        // the last one
    std::set<std::string> keys;
  };

  void see_key(std::string key) {
    Open& object = open_.back();
    object.key = std::move(key);
    if (object.keys.insert(object.key).second) return;
    Json::json_pointer path;
    for (const Open& open : open_) path.push_back(open.is_array ? std::to_string(open.index) : open.key);
    errors_->push_back({*file_, path.to_string(), "stands twice in one object", "", ""});
  }

  const std::string* file_;
  Errors* errors_;
  std::vector<Open> open_;
};

// Where `token` stands in `text` outside of strings, as "line 2, column 8"; empty if it does not.
std::string place_of(std::string_view token, std::string_view text) {
  std::size_t line = 1;
  std::size_t line_start = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (in_string) {
      if (text[i] == '\\')
        ++i;
      else if (text[i] == '"')
        in_string = false;
    } else if (text[i] == '"') {
      in_string = true;
    } else if (text[i] == '\n') {
      ++line;
      line_start = i + 1;
    } else if (text.substr(i, token.size()) == token) {
      return fmt::format("line {}, column {}", line, i - line_start + 1);
    }
  }
  return "";
}

// The text between the first `begin` and the last `end`, as a position and a length in `text`.
std::pair<std::size_t, std::size_t> between(std::string_view text, std::string_view begin, std::string_view end) {
  const std::size_t found = text.find(begin);
  if (found == std::string_view::npos) return {text.size(), 0};
  const std::size_t first = found + begin.size();
  const std::size_t last = text.rfind(end);
  return {first, last == std::string_view::npos || last < first ? 0 : last - first};
}

// "[json.exception.out_of_range.406] number overflow parsing '1e999'" without its tag.
std::string without_tag(std::string_view what) {
  const std::size_t end = what.find("] ");
  return std::string(what.starts_with("[json.exception") && end != std::string_view::npos ? what.substr(end + 2)
                                                                                          : what);
}

InputError syntax_error(const Json::parse_error& error, const std::string& file) {
  std::string message = without_tag(error.what());
  const auto [first, length] = between(message, "last read: '", "'");
  message.replace(first, length, echoed(std::string_view(message).substr(first, length)));
  return {file, "", std::move(message), "JSON", ""};
}

// Of the library's other faults a text can cause one: a number beyond the doubles. Any other is named all the same.
InputError value_error(const Json::exception& error, std::string_view text, const std::string& file) {
  const std::string message = without_tag(error.what());
  if (error.id != 406) return {file, "", echoed(message), "JSON", ""};
  const auto [first, length] = between(message, "'", "'");
  const std::string_view number = std::string_view(message).substr(first, length);
  return {file, place_of(number, text), fmt::format("the number {} is out of range", echoed(number)),
          "a number of magnitude below 1.8e308", ""};
}

}  // namespace

std::string describe(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  if (value.is_string()) return fmt::format("\"{}\"", echoed(value.get_ref<const std::string&>()));
  return value.dump();
}

void for_each_element(const Json& array, const std::string& file, const std::string& path, const char* of,
                      Errors& errors, const std::function<void(const Json&, const std::string&)>& body) {
  if (!array.is_array()) {
    errors.push_back({file, path, "is " + describe(array), fmt::format("an array of {}", of), ""});
    return;
  }
  for (std::size_t i = 0; i < array.size(); ++i) body(array[i], fmt::format("{}/{}", path, i));
}

Expected<Json> parse_json(std::string_view text, const std::string& file) {
  Errors errors;
  DuplicateKeys duplicates(file, errors);
  const auto see = [&duplicates](int, Json::parse_event_t event, Json& parsed) {
    duplicates.see(event, parsed);
    return true;
  };
  try {
    Json value = Json::parse(text.begin(), text.end(), see);
    if (!errors.empty()) return tl::unexpected(errors);
    return value;
  } catch (const Json::parse_error& error) {
    errors.push_back(syntax_error(error, file));
  } catch (const Json::exception& error) {
    errors.push_back(value_error(error, text, file));
  }
  return tl::unexpected(errors);
}

Expected<Json> read_json_file(const std::string& file) {
  const Expected<std::string> text = read_input_file(file, "a JSON file");
  if (!text) return tl::unexpected(text.error());
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
    add_error(key, fmt::format("is \"{}\"", echoed(*text)), fmt::format("one of {}", fmt::join(names, ", ")),
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
    add_error(echoed(key), "unknown key", nearest.empty() ? fmt::format("one of {}", fmt::join(known_, ", ")) : "",
              nearest);
  }
}

}  // namespace longhaul
