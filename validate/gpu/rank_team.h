// One host thread a GPU of this host, each a rank; what the ranks agree on while they measure.
//
// A rank that fails cannot be waited for: the others may sit in a collective that never ends. So the first fault goes
// to `on_fault`, on the failing rank's thread, which is to report it and end the process. Threads that only join would
// hang.
#pragma once

#include <barrier>
#include <exception>
#include <functional>
#include <vector>

namespace longhaul {

class RankTeam {
 public:
  class Member;
  using OnFault = std::function<void(int rank, std::exception_ptr fault)>;

  // `ranks` >= 1; rank r has CUDA device r.
  RankTeam(int ranks, OnFault on_fault);

  // Runs `body` once a rank, each on a thread of its own with its device current; returns when all have ended.
  void run(const std::function<void(Member&)>& body);

 private:
  int ranks_;
  OnFault on_fault_;
  std::barrier<> barrier_;
  std::vector<std::vector<double>> shared_;  // by rank
};

// What a rank sees of its team. All ranks make the same calls in the same order.
class RankTeam::Member {
 public:
  int rank() const { return rank_; }
  int ranks() const { return team_.ranks_; }

  // Returns once every rank is here.
  void barrier() { team_.barrier_.arrive_and_wait(); }
  // The values of all ranks, those of rank 0 first; the same on every rank.
  std::vector<double> gather(const std::vector<double>& values);
  double max(double value);
  double mean(double value);

 private:
  friend class RankTeam;
  Member(RankTeam& team, int rank) : team_(team), rank_(rank) {}

  RankTeam& team_;
  int rank_;
};

}  // namespace longhaul
