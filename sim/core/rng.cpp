#include "sim/core/rng.h"

#include "sim/core/fingerprint.h"
#include "sim/core/invariant.h"

namespace longhaul {
namespace {

std::uint64_t stream_seed(std::uint64_t seed, std::string_view stream) {
  Fingerprint fingerprint;
  fingerprint.add(static_cast<std::int64_t>(seed));
  fingerprint.add(stream);
  return fingerprint.value();
}

}  // namespace

Rng::Rng(std::uint64_t seed, std::string_view stream) : engine_(stream_seed(seed, stream)) {}

std::int64_t Rng::integer(std::int64_t low, std::int64_t high) {
  LH_ASSERT(low <= high, "empty range {}..{}", low, high);
  const std::uint64_t count = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1;
  if (count == 0) return static_cast<std::int64_t>(engine_());
  const std::uint64_t limit = UINT64_MAX - UINT64_MAX % count;
  std::uint64_t draw = engine_();
  while (draw >= limit) draw = engine_();
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + draw % count);
}

}  // namespace longhaul
