#include "sim/cli/validate_gpu.h"

#include <fmt/format.h>

#include <boost/algorithm/string/predicate.hpp>
#include <boost/algorithm/string/trim.hpp>

#include "sim/cluster/device.h"
#include "sim/core/data_files.h"
#include "sim/core/error.h"
#include "validate/device/gpu_devices.h"

namespace longhaul {

std::optional<std::string> missing_for_gpu() {
  constexpr const char* kInstead = "or give a stored run with --record FILE, or --device host for a small emulation";
  std::string why;
  try {
    if (gpu_devices().count(why) > 0) return std::nullopt;
  } catch (const LimitError& error) {
    return fmt::format("{}; {}", error.what(), kInstead);
  }
  return fmt::format("no GPU can be used here ({}): run on a machine with one, {}", why, kInstead);
}

std::string shipped_device_of(const std::string& hardware_name) {
  std::string name = hardware_name;
  for (const char* vendor : {"NVIDIA ", "AMD Instinct "}) {
    if (boost::starts_with(name, vendor)) name.erase(0, std::string(vendor).size());
  }
  boost::trim(name);
  // The longest name or alias that the driver's begins with: "H200" of "H200 SXM", "A100-SXM4-80GB" before "A100".
  std::string best;
  std::size_t length = 0;
  for (const std::string& shipped : shipped_devices(data_directory())) {
    const Expected<DeviceSpec> device = read_device(shipped, data_directory());
    if (!device) continue;
    std::vector<std::string> names = device->aliases;
    names.push_back(device->name);
    for (const std::string& one : names) {
      if (boost::istarts_with(name, one) && one.size() > length) {
        best = shipped;
        length = one.size();
      }
    }
  }
  return best;
}

}  // namespace longhaul
