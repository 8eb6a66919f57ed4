// The order that a Python program's seeded `random.shuffle` gives, so that a published run can be repeated.
#pragma once

#include <cstdint>
#include <vector>

namespace longhaul {

// 0 .. count - 1 as `random.seed(seed); random.shuffle(list(range(count)))` leaves them in Python 3.2 or newer, for a
// seed below 2^32: the Mersenne twister begun with the seed as a key of one word (Matsumoto and Nishimura,
// init_by_array), exchanges from the last place down, places drawn by rejection from the highest bits.
// 0 <= count < 2^31.
std::vector<std::int64_t> python_shuffle(std::int64_t count, std::uint32_t seed);

}  // namespace longhaul
