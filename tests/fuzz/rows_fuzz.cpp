// Rows of collectives (CSV): what is read is what a model can take.

#include <string>

#include "sim/network/nccl/rows.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longhaul;
  const Expected<std::vector<CollectiveRow>> rows =
      parse_collective_rows(std::string(text_of(data, size)), "fuzzed.csv");
  if (!rows) {
    require_said(rows.error());
    return 0;
  }
  for (const CollectiveRow& row : *rows) {
    LH_ASSERT(row.bytes > 0 && row.nodes > 0, "a row of {} bytes", row.bytes);
    LH_ASSERT(!row.measured_us || *row.measured_us > 0, "a row of {} us", *row.measured_us);
  }
  return 0;
}
