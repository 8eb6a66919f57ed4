#include "validate/report/kept_run.h"

#include <fmt/format.h>

#include "sim/core/json.h"
#include "sim/study/results_json.h"

namespace longhaul {
namespace {

// A record that stands at `path` of the file.
std::optional<RunRecord> read_record_at(const Json& json, const std::string& file, const std::string& path,
                                        Errors& errors) {
  Expected<RunRecord> record = run_record_from_json(json, file);
  if (record) return std::move(*record);
  for (InputError error : record.error()) {
    error.path = path + error.path;
    errors.push_back(std::move(error));
  }
  return std::nullopt;
}

// Each version of a kept run has one form of record.
void check_format(const Json& record, const std::string& schema, JsonReader& reader) {
  if (schema.empty() || !record.is_object() || !record.contains("format")) return;
  const std::string format = schema == "kept-run/1" ? "longhaul-run/1" : "longhaul-run/2";
  if (record["format"] == format) return;
  reader.add_error("record/format", "is " + describe(record["format"]), fmt::format("\"{}\" in {}", format, schema));
}

}  // namespace

std::string kept_run_text(const KeptRun& run) {
  return results_text({{"schema", "kept-run/2"},
                       {"origin", run.origin},
                       {"study", run.study},
                       {"case", run.study_case},
                       {"strategy", run.strategy},
                       {"record", to_columns_json(run.record)}},
                      LongLists::kFilled);
}

Expected<KeptRun> parse_kept_run(const Json& json, const std::string& file) {
  Errors errors;
  KeptRun run;
  if (json.is_object() && json.contains("format") && !json.contains("schema")) {  // a bare record
    std::optional<RunRecord> record = read_record_at(json, file, "", errors);
    if (!record) return tl::unexpected(std::move(errors));
    run.record = std::move(*record);
    run.study_case = run.record.identity.study_case;
    run.strategy = run.record.identity.strategy;
    return run;
  }
  JsonReader reader(json, file, "", errors);
  const std::string schema = reader.required_choice("schema", {"kept-run/1", "kept-run/2"}).value_or("");
  run.origin = reader.required_choice("origin", {"measured", "emulated", "synthetic"}).value_or("");
  if (const Json* study = reader.required("study", "the study that ran, an object of schema study/1")) {
    if (study->is_object()) {
      run.study = *study;
    } else {
      reader.add_error("study", fmt::format("is {}", describe(*study)), "an object of schema study/1");
    }
  }
  run.study_case = reader.required_string("case").value_or("");
  run.strategy = reader.required_string("strategy").value_or("");
  if (const Json* record = reader.required("record", "what was measured, an object of format longhaul-run/2")) {
    check_format(*record, schema, reader);
    std::optional<RunRecord> read = read_record_at(*record, file, "/record", errors);
    if (read) run.record = std::move(*read);
  }
  reader.finish();
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return run;
}

Expected<KeptRun> read_kept_run(const std::string& file) {
  const Expected<Json> json = read_json_file(file);
  if (!json) return tl::unexpected(json.error());
  return parse_kept_run(*json, file);
}

}  // namespace longhaul
