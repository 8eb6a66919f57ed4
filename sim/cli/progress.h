// A progress bar on standard error: only on a terminal, only when the work takes over a second.
#pragma once

#include <chrono>
#include <cstddef>

namespace longhaul {

class Progress {
 public:
  explicit Progress(bool quiet);
  // From one thread at a time.
  void show(std::size_t done, std::size_t of);
  void clear();

 private:
  std::chrono::steady_clock::time_point start_;
  bool wanted_ = false;
  bool shown_ = false;
};

}  // namespace longhaul
