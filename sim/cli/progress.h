// A progress bar on standard error: only on a terminal, only when the work takes over a second.
//
// A thread of its own draws it, so that it also appears while one long step runs.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>

namespace longhaul {

class Progress {
 public:
  explicit Progress(bool quiet);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // From any thread. `phase` says what runs now.
  void show(std::size_t done, std::size_t of, const std::string& phase = "");
  // Ends the bar and wipes it; nothing is drawn afterwards. Call it before other output.
  void clear();

 private:
  void draw_until_cleared();

  std::mutex mutex_;
  std::condition_variable cleared_;
  bool done_ = false;
  std::string line_;
  std::thread thread_;  // only on a terminal
};

}  // namespace longhaul
