// Kept runs, the timelines that are read back: what is read is written to the same bytes that it reads from.

#include "sim/core/json.h"
#include "tests/fuzz/fuzz_target.h"
#include "validate/report/kept_run.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longhaul;
  const Expected<Json> json = parse_json(text_of(data, size), "fuzzed.json");
  if (!json) {
    require_said(json.error());
    return 0;
  }
  const Expected<KeptRun> run = parse_kept_run(*json, "fuzzed.json");
  if (!run) {
    require_said(run.error());
    return 0;
  }
  const std::string text = kept_run_text(*run);
  const Expected<Json> written = parse_json(text, "written.json");
  LH_ASSERT(written.has_value(), "what is written is no JSON: {}", written.error().front().to_string());
  const Expected<KeptRun> again = parse_kept_run(*written, "written.json");
  LH_ASSERT(again.has_value(), "what is written is refused: {}", again.error().front().to_string());
  LH_ASSERT(kept_run_text(*again) == text, "a kept run of {} ops changes on its way", run->record.ops.size());
  return 0;
}
