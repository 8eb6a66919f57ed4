#include "sim/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace longhaul {

Progress::Progress(bool quiet)
    : start_(std::chrono::steady_clock::now()), wanted_(!quiet && isatty(STDERR_FILENO) != 0) {}

void Progress::show(std::size_t done, std::size_t of) {
  if (!wanted_ || std::chrono::steady_clock::now() - start_ < std::chrono::seconds(1)) return;
  constexpr std::size_t kWidth = 40;
  const std::size_t filled = of == 0 ? kWidth : kWidth * done / of;
  fmt::print(stderr, "\r[{:#<{}}{:.<{}}] {}/{}", "", filled, "", kWidth - filled, done, of);
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (shown_) fmt::print(stderr, "\r\033[K");
  shown_ = false;
}

}  // namespace longhaul
