#include "validate/device/host_bytes.h"

#include <algorithm>
#include <cstring>

#include "validate/cpu/wide_product.h"

namespace longhaul {

HostBytes fresh_bytes(std::int64_t size) {
  constexpr std::int64_t kBlock = std::int64_t{4} << 20;
  HostBytes bytes(static_cast<std::size_t>(size));
  share_out((size + kBlock - 1) / kBlock, hardware_threads(), [&](std::int64_t block) {
    const std::int64_t begin = block * kBlock;
    std::memset(bytes.data() + begin, 0, static_cast<std::size_t>(std::min(kBlock, size - begin)));
  });
  return bytes;
}

}  // namespace longhaul
