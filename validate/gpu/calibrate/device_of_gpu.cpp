#include "validate/gpu/calibrate/device_of_gpu.h"

#include <algorithm>
#include <boost/algorithm/string.hpp>

namespace longhaul {

std::optional<std::string> device_of_gpu(const std::string& gpu_name, const std::vector<std::string>& devices) {
  std::vector<std::string> words;
  boost::split(words, gpu_name, [](char c) { return !boost::is_alnum()(c); });
  for (std::string& word : words) boost::to_lower(word);
  std::optional<std::string> best;
  for (const std::string& device : devices) {
    std::vector<std::string> parts;
    boost::split(parts, device, boost::is_any_of("-"));
    const bool fits = std::all_of(parts.begin(), parts.end(), [&](const std::string& part) {
      return std::find(words.begin(), words.end(), part) != words.end();
    });
    if (fits && (!best || device.size() > best->size())) best = device;
  }
  return best;
}

}  // namespace longhaul
