// A validation report as JSON (validate/report/validation.schema.json).
#include <cmath>

#include "sim/study/results_json.h"
#include "validate/device/record_fields.h"
#include "validate/report/validation_report.h"

namespace longhaul {
namespace {

// Milliseconds to the picosecond, as results.json has them.
double ms(double seconds) { return std::round(seconds * 1e12) / 1e9; }

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }

// Seconds as ms, or bytes as they are; what was not measured is null.
Json row_json(const ComparedRow& row, bool is_bytes = false) {
  const bool measured = row.source != Source::kModel;
  const auto amount = [&](double value) { return is_bytes ? Json(std::llround(value)) : Json(ms(value)); };
  const auto of_measured = [&](double value) { return measured ? amount(value) : Json(); };
  const std::string unit = is_bytes ? "_bytes" : "_ms";
  Json json = {{"name", row.name}, {"source", to_string(row.source)}, {"calls", row.calls}};
  json["predicted" + unit] = amount(row.predicted);
  json["predicted_low" + unit] = amount(row.predicted_low);
  json["predicted_high" + unit] = amount(row.predicted_high);
  json["measured" + unit] = of_measured(row.measured);
  json["measured_low" + unit] = of_measured(row.measured_low);
  json["measured_high" + unit] = of_measured(row.measured_high);
  json["bounded"] = row.bounded;
  json["error"] = measured ? Json(row.error()) : Json();
  json["inside"] = measured ? Json(row.inside()) : Json();
  json["share"] = row.share;
  return json;
}

Json rows_json(const std::vector<ComparedRow>& rows, bool is_bytes = false) {
  Json list = Json::array();
  for (const ComparedRow& row : rows) list.push_back(row_json(row, is_bytes));
  return list;
}

Json numerics_json(const std::vector<NumericsResult>& numerics) {
  Json list = Json::array();
  for (const NumericsResult& one : numerics) {
    list.push_back({{"quantity", one.quantity},
                    {"reference", one.reference},
                    {"error", number_or_null(one.error)},
                    {"limit", number_or_null(one.limit)},
                    {"undistributed_error", number_or_null(one.undistributed_error)},
                    {"elements", one.elements},
                    {"missing", one.missing},
                    {"worst", one.worst},
                    {"pass", one.pass}});
  }
  return list;
}

Json worst_json(const WorstOps& worst) {
  Json ops = Json::array();
  for (const ComparedSite& site : worst.sites) {
    Json json = {{"label", site.label}, {"kind", site.kind},     {"pass", site.pass},  {"shape", site.shape},
                 {"basis", site.basis}, {"kernel", site.kernel}, {"ranks", site.ranks}};
    json.update(row_json(site.row));
    json.erase("name");
    ops.push_back(std::move(json));
  }
  Json traits = Json::array();
  for (const Trait& trait : worst.traits) {
    traits.push_back({{"trait", trait.name},
                      {"value", trait.value},
                      {"worst", trait.worst},
                      {"worst_of", trait.worst_of},
                      {"all", trait.others},
                      {"all_of", trait.others_of},
                      {"chance", trait.chance}});
  }
  return {{"ops", std::move(ops)}, {"in_common", std::move(traits)}};
}

const char* verdict_key(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return "pass";
    case Verdict::kFail:
      return "fail";
    case Verdict::kUndecided:
      return "undecided";
  }
  return "";
}

Json gates_json(const ValidationReport& report) {
  Json checks = Json::array();
  for (const GateCheck& check : report.gates.checks) {
    checks.push_back({{"suite", check.suite},
                      {"name", check.name},
                      {"verdict", verdict_key(check.verdict)},
                      {"value", number_or_null(check.value)},
                      {"low", number_or_null(check.low)},
                      {"high", number_or_null(check.high)},
                      {"limit", number_or_null(check.limit)},
                      {"message", check.message}});
  }
  return {{"pass", passes(report)},
          {"max_error", report.max_error ? Json(*report.max_error) : Json()},
          {"max_slowdown", report.baseline.empty() ? Json() : Json(report.max_slowdown)},
          {"baseline", report.baseline.empty() ? Json() : Json(report.baseline)},
          {"remarks", report.gates.remarks},
          {"checks", std::move(checks)}};
}

}  // namespace

Json validation_json(const ValidationReport& report) {
  const Comparison& of = report.comparison;
  Json exclusions = Json::array();
  for (const Exclusion& one : of.exclusions) {
    exclusions.push_back({{"rank", one.rank}, {"position", one.position}, {"what", one.what}, {"reason", one.reason}});
  }
  return {{"schema", "validation/1"},
          {"version", longhaul_version()},
          {"study", of.identity.study},
          {"case", of.identity.study_case},
          {"strategy", of.strategy},
          {"layout", report.layout},
          {"calibration", report.calibration},
          {"date", of.identity.date},
          {"recorded_by", of.identity.version},
          {"git", of.identity.git},
          {"placement", to_string(of.placement)},
          {"ranks", of.ranks},
          {"repeats", of.repeats},
          {"confidence", of.confidence},
          {"hardware", hardware_json(of.hardware)},
          {"reduced", of.identity.reductions},
          {"remarks", of.remarks},
          {"left_out", std::move(exclusions)},
          {"numerics", numerics_json(of.numerics)},
          {"step", row_json(of.step)},
          {"exposed_communication", row_json(of.exposed_communication)},
          {"kinds", rows_json(of.kinds)},
          {"collectives", rows_json(of.collectives)},
          {"rank_compute", rows_json(of.rank_compute)},
          {"rank_alone", rows_json(of.rank_alone)},
          {"streams", rows_json(of.streams)},
          {"peak_memory", rows_json(of.peak_memory, true)},
          {"worst", worst_json(of.worst)},
          {"gates", gates_json(report)}};
}

}  // namespace longhaul
