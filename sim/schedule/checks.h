// A dry run of the rules of a schedule, without numbers and without time.
//
// Checked on each rank, by vector clocks over its streams (order that arises only through another rank does not count):
// tensors are acquired once, used and released while held, never left over; elements that are read or added to have
// been written (attention: the rows that its pieces name); two overlapping uses of which one writes are ordered by
// stream or event, and so are acquire, use, release and the next acquire of the same tensor. Between ranks: the k-th
// calls of a group agree in kind, parts and sizes; bytes sent equal bytes received for every pair; every rank issues
// the calls of all groups in one common order, so nobody waits at the end. To 10^7 ops. Ignored: values, memory sizes,
// time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/schedule/schedule.h"

namespace longhaul {

struct CheckOptions {
  std::int64_t max_ops = 10'000'000;  // LimitError beyond
  std::size_t max_violations = 100;   // more are counted, not listed
};

struct CheckResult {
  std::vector<std::string> violations;  // with rank, op, layer, chunk, tensor
  std::int64_t violation_count = 0;
  std::int64_t ops = 0;
  bool ok() const { return violation_count == 0; }
};

CheckResult check_schedule(const Schedule& schedule, const CheckOptions& options = {});

}  // namespace longhaul
