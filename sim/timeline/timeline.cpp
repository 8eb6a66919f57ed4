#include "sim/timeline/timeline.h"

#include "sim/core/fingerprint.h"

namespace longhaul {

std::uint64_t fingerprint(std::span<const OpRecord> records) {
  Fingerprint hash;
  for (const OpRecord& record : records) {
    hash.add(std::int64_t{record.rank});
    hash.add(std::int64_t{record.stream});
    hash.add(static_cast<std::int64_t>(record.kind));
    hash.add(static_cast<std::int64_t>(record.pass));
    hash.add(record.label);
    hash.add(std::int64_t{record.segment});
    hash.add(std::int64_t{record.index});
    hash.add(std::int64_t{record.chunk});
    hash.add(std::int64_t{record.layer});
    hash.add(std::int64_t{record.group});
    for (const Time time : {record.issue, record.arrival, record.start, record.end}) hash.add(time.ps());
  }
  return hash.value();
}

Time RankTotals::busy(Pass pass) const {
  Time sum;
  for (const Time time : compute[static_cast<std::size_t>(pass)]) sum += time;
  return sum;
}

Time RankTotals::busy() const {
  Time sum;
  for (int pass = 0; pass < kPassCount; ++pass) sum += busy(static_cast<Pass>(pass));
  return sum;
}

}  // namespace longhaul
