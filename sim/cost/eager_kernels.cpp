#include "sim/cost/eager_kernels.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "sim/core/json.h"

namespace longhaul {
namespace {

constexpr double kLargestEagerSeconds = 1.0;

// Calls `read` with a reader of each member of an object of objects.
template <typename Read>
void read_members(JsonReader& parent, const char* key, const Read& read) {
  const Json* json = parent.required(key, "an object of kinds");
  if (json == nullptr) return;
  if (!json->is_object()) {
    parent.add_error(key, "is no object", "kinds by name");
    return;
  }
  for (const auto& [name, value] : json->items()) {
    JsonReader reader(value, parent.file(), parent.child_path(key) + "/" + name, parent.errors());
    if (value.is_object()) read(name, reader);
    reader.finish();
  }
}

Expected<std::shared_ptr<const EagerKernels>> read(const Json& json, const std::string& file) {
  Errors errors;
  JsonReader reader(json, file, "", errors);
  if (!json.is_object()) return tl::unexpected(std::move(errors));
  auto eager = std::make_shared<EagerKernels>();
  reader.required_choice("schema", {"eager-kernels/1"});
  reader.required_string("description");
  eager->date = reader.required_string("date").value_or("");
  reader.required("sources", "a list of texts");
  eager->measured_multiprocessor_clocks =
      reader.required_number("multiprocessor_clocks_per_second", 1e6, 1e15).value_or(1e6);
  eager->measured_memory_bytes_per_second = reader.required_number("memory_bytes_per_second", 1e9, 1e15).value_or(1e9);
  read_members(reader, "kernels", [&](const std::string& name, JsonReader& one) {
    EagerKernelTimes times;
    times.seconds_per_byte = one.required_number("seconds_per_byte", 1e-15, 1e-6).value_or(0);
    times.host_seconds = one.required_number("host_seconds", 0, kLargestEagerSeconds).value_or(0);
    times.wait_seconds = one.required_number("wait_seconds", 0, kLargestEagerSeconds).value_or(0);
    times.memory_bound = one.required_choice("bound", {"memory", "multiprocessors"}) != "multiprocessors";
    times.low = one.required_number("low", -0.95, 0).value_or(0);
    times.high = one.required_number("high", 0, 100).value_or(0);
    eager->kernels.emplace(name, times);
  });
  read_members(reader, "stalls", [&](const std::string& name, JsonReader& one) {
    HostStallTimes times;
    times.seconds = one.required_number("seconds", 0, kLargestEagerSeconds).value_or(0);
    times.seconds_per_piece = one.required_number("seconds_per_piece", 0, kLargestEagerSeconds).value_or(0);
    eager->stalls.emplace(name, times);
  });
  reader.finish();
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return std::shared_ptr<const EagerKernels>(std::move(eager));
}

}  // namespace

const EagerKernelTimes* EagerKernels::kernel(std::string_view name) const {
  const auto at = kernels.find(name);
  return at == kernels.end() ? nullptr : &at->second;
}

const HostStallTimes* EagerKernels::stall(std::string_view name) const {
  const auto at = stalls.find(name);
  return at == stalls.end() ? nullptr : &at->second;
}

Expected<std::shared_ptr<const EagerKernels>> parse_eager_kernels(const std::string& text, const std::string& file) {
  const Expected<Json> json = parse_json(text, file);
  if (!json) return tl::unexpected(json.error());
  return read(*json, file);
}

Expected<std::shared_ptr<const EagerKernels>> read_eager_kernels(const std::string& data_directory) {
  const auto path = std::filesystem::path(data_directory) / "topologies" / "devices" / "eager" / "pytorch.json";
  const Expected<Json> json = read_json_file(path.string());
  if (!json) return tl::unexpected(json.error());
  return read(*json, path.string());
}

}  // namespace longhaul
