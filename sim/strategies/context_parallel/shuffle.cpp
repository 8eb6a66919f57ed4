#include "sim/strategies/context_parallel/shuffle.h"

#include <array>
#include <bit>
#include <numeric>
#include <random>
#include <utility>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

constexpr std::size_t kWords = std::mt19937::state_size;

// What std::mt19937 asks for its state: that of init_by_array with one word.
class KeyedState {
 public:
  using result_type = std::uint32_t;

  explicit KeyedState(std::uint32_t key) {
    state_[0] = 19650218U;
    for (std::size_t i = 1; i < kWords; ++i) {
      state_[i] = 1812433253U * (state_[i - 1] ^ (state_[i - 1] >> 30)) + static_cast<std::uint32_t>(i);
    }
    mix(kWords, 1664525U, [&](std::size_t) { return key; });
    mix(kWords - 1, 1566083941U, [](std::size_t i) { return 0U - static_cast<std::uint32_t>(i); });
    state_[0] = 0x80000000U;
  }

  template <typename Iterator>
  void generate(Iterator begin, Iterator end) const {
    for (std::size_t i = 0; begin != end; ++begin, ++i) *begin = state_[i % kWords];
  }

 private:
  template <typename Added>
  void mix(std::size_t steps, std::uint32_t by, Added added) {
    for (std::size_t step = 0; step < steps; ++step) {
      const std::uint32_t before = state_[at_ - 1];
      state_[at_] = (state_[at_] ^ ((before ^ (before >> 30)) * by)) + added(at_);
      if (++at_ < kWords) continue;
      state_[0] = state_[kWords - 1];
      at_ = 1;
    }
  }

  std::array<std::uint32_t, kWords> state_{};
  std::size_t at_ = 1;
};

}  // namespace

std::vector<std::int64_t> python_shuffle(std::int64_t count, std::uint32_t seed) {
  LH_ASSERT(count >= 0 && count < (std::int64_t{1} << 31), "{} to shuffle", count);
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  KeyedState state(seed);
  std::mt19937 engine(state);
  for (std::size_t last = order.size(); last > 1; --last) {
    const auto bits = static_cast<int>(std::bit_width(last));
    std::size_t place = last;
    while (place >= last) place = static_cast<std::size_t>(engine() >> (32 - bits));
    std::swap(order[last - 1], order[place]);
  }
  return order;
}

}  // namespace longhaul
