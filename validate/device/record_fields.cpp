#include "validate/device/record_fields.h"

#include <fmt/format.h>

#include "sim/schedule/op_kind_name.h"

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
  static const std::vector<std::string> names = [] {
    std::vector<std::string> made;
    for (int i = 0; i <= static_cast<int>(OpKind::kCollective); ++i) {
      const auto kind = static_cast<OpKind>(i);
      made.emplace_back(kind == OpKind::kMergePartials ? "merge_partials" : op_kind_name(kind));
    }
    return made;
  }();
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

Json hardware_json(const HardwareInfo& of) {
  return {{"device", of.device},
          {"devices", of.devices},
          {"device_memory_bytes", of.device_memory_bytes},
          {"multiprocessors", of.multiprocessors},
          {"compute_capability", of.compute_capability},
          {"driver", of.driver},
          {"cuda", of.cuda},
          {"cublas", of.cublas},
          {"cudnn", of.cudnn},
          {"nccl", of.nccl},
          {"sm_clock_mhz", of.sm_clock_mhz},
          {"memory_clock_mhz", of.memory_clock_mhz},
          {"sm_clock_before_mhz", of.sm_clock_before_mhz},
          {"sm_clock_after_mhz", of.sm_clock_after_mhz},
          {"temperature_before_c", of.temperature_before_c},
          {"temperature_after_c", of.temperature_after_c},
          {"power_before_w", of.power_before_w},
          {"power_after_w", of.power_after_w}};
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
