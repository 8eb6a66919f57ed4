// What the CPU executor throws about a schedule that breaks the rules. Never the user's fault, and never an assertion:
// the point of this executor is to find such schedules, and tests make them on purpose.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace longhaul {

// A rule of the schedule does not hold; the message names rank, op, layer, chunk and tensor.
class ScheduleError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// No op can run and some have not. One line for each blocked (rank, stream): what it is and whom it waits for.
class DeadlockError : public ScheduleError {
 public:
  DeadlockError(const std::string& message, std::vector<std::string> waiting)
      : ScheduleError(message), waiting_(std::move(waiting)) {}
  const std::vector<std::string>& waiting() const { return waiting_; }

 private:
  std::vector<std::string> waiting_;
};

}  // namespace longhaul
