#include "validate/device/record_fields.h"

#include <fmt/format.h>

namespace longhaul {
namespace {

// Names of an enumeration's values 0 .. last.
template <class Enum>
std::vector<std::string> names_to(Enum last) {
  std::vector<std::string> names;
  for (int i = 0; i <= static_cast<int>(last); ++i) names.emplace_back(to_string(static_cast<Enum>(i)));
  return names;
}

}  // namespace

const std::vector<std::string>& op_kind_names() {
  static const std::vector<std::string> names = {"gemm", "attention", "merge_partials", "elementwise",
                                                 "move", "optimizer", "collective"};
  return names;
}
const std::vector<std::string>& pass_names() {
  static const std::vector<std::string> names = names_to(Pass::kOptimizer);
  return names;
}
const std::vector<std::string>& function_names() {
  static const std::vector<std::string> names = names_to(Function::kCrossEntropy);
  return names;
}
const std::vector<std::string>& collective_names() {
  static const std::vector<std::string> names = names_to(CollectiveKind::kExchange);
  return names;
}
const std::vector<std::string>& placement_names() {
  static const std::vector<std::string> names = names_to(RankPlacement::kReal);
  return names;
}

std::string required_text(JsonReader& in, std::string_view key) { return in.required_string(key).value_or(""); }

bool required_flag(JsonReader& in, std::string_view key) {
  if (in.required(key, "true or false") == nullptr) return false;
  return in.boolean(key).value_or(false);
}

void each_object(JsonReader& in, std::string_view key, const std::function<void(JsonReader&)>& item) {
  const Json* list = in.required(key, "a list of objects");
  if (list == nullptr) return;
  if (!list->is_array()) {
    in.add_error(key, "is " + describe(*list), "a list of objects");
    return;
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    JsonReader reader((*list)[i], in.file(), fmt::format("{}/{}", in.child_path(key), i), in.errors());
    item(reader);
  }
}

std::optional<std::int64_t> whole_number(const Json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > kMost) return std::nullopt;
  return value.get<std::int64_t>();
}

}  // namespace longhaul
