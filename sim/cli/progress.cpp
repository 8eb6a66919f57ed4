#include "sim/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace longhaul {

Progress::Progress(bool quiet) {
  if (!quiet && isatty(STDERR_FILENO) != 0) thread_ = std::thread([this] { draw_until_cleared(); });
}

void Progress::show(std::size_t done, std::size_t of, const std::string& phase) {
  constexpr std::size_t kWidth = 40;
  const std::size_t filled = of == 0 ? kWidth : kWidth * done / of;
  const std::lock_guard<std::mutex> lock(mutex_);
  line_ = fmt::format("[{:#<{}}{:.<{}}] {}/{}{}{}", "", filled, "", kWidth - filled, done, of, phase.empty() ? "" : " ",
                      phase);
}

void Progress::draw_until_cleared() {
  std::unique_lock<std::mutex> lock(mutex_);
  auto pause = std::chrono::milliseconds(1000);
  bool shown = false;
  while (!cleared_.wait_for(lock, pause, [this] { return done_; })) {
    if (line_.empty()) continue;
    fmt::print(stderr, "\r\033[K{}", line_);
    std::fflush(stderr);
    shown = true;
    pause = std::chrono::milliseconds(200);
  }
  if (shown) fmt::print(stderr, "\r\033[K");
}

void Progress::clear() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
  }
  cleared_.notify_all();
  thread_.join();
}

}  // namespace longhaul
