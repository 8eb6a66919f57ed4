// Where every tensor of a rank lies in the one block of device memory that the rank has.
//
// A tensor's memory is its own from the start of the op that acquires it to the end of the op that releases it;
// resident ones keep it throughout. Two tensors may share memory only if streams and events order the release of the
// one before the acquire of the other (HappensBefore), so that reuse is right however the streams run. First fit: each
// tensor takes the lowest offset that is free of all tensors it may meet, in program order or by falling size, lifetime
// or their product, whichever needs least. A pure function of the programs. Offsets are multiples of kArenaAlignment.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "validate/device/programs.h"

namespace longhaul {

inline constexpr std::int64_t kArenaAlignment = 256;
inline constexpr std::int64_t kArenaSlack = 64;  // bytes behind every tensor that are its own too
inline constexpr std::int32_t kBeforeStep = -1;
inline constexpr std::int32_t kAfterStep = INT32_MAX;

struct ArenaTensor {
  TensorId id;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  std::int32_t acquired = kBeforeStep;  // positions in the rank's program
  std::int32_t released = kAfterStep;
};

struct ArenaPlan {
  std::vector<ArenaTensor> tensors;  // residents, then in the order in which they are acquired
  std::int64_t bytes = 0;            // of the block
  std::int64_t peak_bytes = 0;       // most bytes held at once, taking the ops in program order
  std::int64_t resident_bytes = 0;

  // What the rank holds under that id while the op at `position` runs; nullptr if nothing.
  const ArenaTensor* find(const TensorId& id, std::int32_t position) const;

  std::map<std::uint64_t, std::vector<std::int32_t>> by_key;  // TensorId::key to indices, ascending
};

// Throws ScheduleError (validate/cpu/errors.h) for a tensor acquired while held, released while not held, or never
// released.
ArenaPlan plan_arena(const Schedule& schedule, const Programs& programs, std::int32_t rank);

// Whether two tensors may be in memory at the same time.
bool may_meet(const ArenaTensor& a, const ArenaTensor& b, const HappensBefore& before);

}  // namespace longhaul
