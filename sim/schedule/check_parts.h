// The two halves of check_schedule: the rules of one rank alone, and the calls of groups.
#pragma once

#include <string>
#include <utility>

#include "sim/schedule/checks.h"

namespace longhaul {

// Counts violations and keeps the first ones.
class Violations {
 public:
  Violations(CheckResult& result, const CheckOptions& options) : result_(result), options_(options) {}
  // `text` is called only if the violation is listed.
  template <class Text>
  void add(Text&& text) {
    ++result_.violation_count;
    if (result_.violations.size() < options_.max_violations) result_.violations.push_back(text());
  }
  // Throws LimitError above the limit.
  void count_op();

 private:
  CheckResult& result_;
  const CheckOptions& options_;
};

void check_rank(const Schedule& schedule, int rank, Violations& violations);
void check_calls(const Schedule& schedule, Violations& violations);

}  // namespace longhaul
