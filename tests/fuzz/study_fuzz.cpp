// Studies: a study that is read reads again, as it was resolved, to the same resolved study.

#include "sim/core/json.h"
#include "sim/scenario/study.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longhaul;
  const Expected<Json> json = parse_json(text_of(data, size), "fuzzed.json");
  if (!json) {
    require_said(json.error());
    return 0;
  }
  StudyOptions options;
  options.known_strategies = {"allgather-cp", "basp",    "bp",      "csbp", "data-parallel",
                              "dpp",          "flashcp", "ulysses", "1f1b"};
  const Expected<Study> study = parse_study(*json, "fuzzed.json", options);
  if (!study) {
    require_said(study.error());
    return 0;
  }
  const Expected<Study> again = parse_study(study->resolved, "resolved.json", options);
  LH_ASSERT(again.has_value(), "a resolved study is refused: {}", again.error().front().to_string());
  LH_ASSERT(again->resolved == study->resolved, "a resolved study resolves to another one: {}", study->name);
  return 0;
}
