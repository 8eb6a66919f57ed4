// The JSON form of a run record. Keys in a fixed order; lists of times as plain integers.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <utility>

#include "sim/core/json.h"
#include "validate/device/op_columns.h"
#include "validate/device/record_fields.h"
#include "validate/device/run_record.h"

namespace longhaul {
namespace {

constexpr const char* kFormat = "longhaul-run/1";
constexpr const char* kColumnsFormat = "longhaul-run/2";
constexpr std::int64_t kMostMegahertz = 100'000;

// JSON has no infinity: null stands for it.
Json error_json(double error) { return std::isfinite(error) ? Json(error) : Json(); }
// 64 bits as text, since JSON numbers of other readers hold 53.
std::string hash_text(std::uint64_t value) { return fmt::format("{:016x}", value); }

Json identity_json(const RunIdentity& of) {
  return {{"study", of.study},
          {"case", of.study_case},
          {"strategy", of.strategy},
          {"study_file", of.study_file},
          {"reductions", of.reductions},
          {"fingerprint", hash_text(of.fingerprint)},
          {"seed", hash_text(of.seed)},
          {"date", of.date},
          {"git", of.git},
          {"version", of.version}};
}

Json op_json(const MeasuredOp& of) {
  return {{"rank", of.rank},
          {"position", of.position},
          {"stream", of.stream},
          {"kind", name_in(op_kind_names(), of.kind)},
          {"pass", name_in(pass_names(), of.pass)},
          {"function", name_in(function_names(), of.function)},
          {"collective", name_in(collective_names(), of.collective)},
          {"segment", of.segment},
          {"index", of.index},
          {"layer", of.layer},
          {"chunk", of.chunk},
          {"group", of.group},
          {"label", of.label},
          {"kernel", of.kernel},
          {"bytes", of.bytes},
          {"communication", of.communication},
          {"start_ps", of.start_ps},
          {"end_ps", of.end_ps}};
}

Json rank_json(const RankRun& of) {
  Json json = {{"rank", of.rank},
               {"device", of.device},
               {"resident_bytes", of.resident_bytes},
               {"planned_peak_bytes", of.planned_peak_bytes},
               {"arena_bytes", of.arena_bytes},
               {"scratch_bytes", of.scratch_bytes},
               {"device_peak_bytes", of.device_peak_bytes},
               {"step_ps", of.step_ps}};
  if (!of.clock_mhz.empty()) json["clock_mhz"] = of.clock_mhz;
  return json;
}

Json numerics_json(const NumericsResult& of) {
  return {{"quantity", of.quantity},
          {"reference", of.reference},
          {"error", error_json(of.error)},
          {"undistributed_error", error_json(of.undistributed_error)},
          {"limit", error_json(of.limit)},
          {"elements", of.elements},
          {"missing", of.missing},
          {"worst", of.worst},
          {"pass", of.pass}};
}

// `add_ops` puts the ops where they belong among the keys.
template <class AddOps>
Json record_json(const RunRecord& record, const char* format, AddOps&& add_ops) {
  Json json;
  json["format"] = format;
  json["identity"] = identity_json(record.identity);
  json["hardware"] = hardware_json(record.hardware);
  json["placement"] = name_in(placement_names(), record.placement);
  json["ranks"] = record.ranks;
  json["warmups"] = record.warmups;
  json["repeats"] = record.repeats;
  json["rank_runs"] = Json::array();
  for (const RankRun& rank : record.rank_runs) json["rank_runs"].push_back(rank_json(rank));
  add_ops(json);
  json["step_ps"] = record.step_ps;
  json["device_peak_bytes"] = record.device_peak_bytes;
  json["numerics"] = Json::array();
  for (const NumericsResult& result : record.numerics) json["numerics"].push_back(numerics_json(result));
  json["exclusions"] = Json::array();
  for (const Exclusion& of : record.exclusions) {
    json["exclusions"].push_back(
        {{"rank", of.rank}, {"position", of.position}, {"what", of.what}, {"reason", of.reason}});
  }
  const RunFailure& failure = record.failure;
  json["failure"] = {{"kind", failure.kind},         {"message", failure.message}, {"rank", failure.rank},
                     {"position", failure.position}, {"op", failure.op},           {"kernel", failure.kernel}};
  return json;
}

// ---- reading

class RecordReader {
 public:
  RecordReader(std::string file, Errors& errors, bool part) : file_(std::move(file)), errors_(errors), part_(part) {}

  RunRecord read(const Json& json) {
    JsonReader in(json, file_, "", errors_);
    RunRecord record;
    const std::optional<std::string> format = in.required_choice("format", {kFormat, kColumnsFormat});
    const bool columns = format == kColumnsFormat;
    if (const Json* value = in.required("identity", "an object")) record.identity = identity(*value, in);
    if (const Json* value = in.required("hardware", "an object")) record.hardware = hardware(*value, in);
    record.placement = required_name<RankPlacement>(in, "placement", placement_names());
    record.ranks = required_whole<std::int32_t>(in, "ranks", 0);
    record.warmups = required_whole<std::int32_t>(in, "warmups", 0);
    record.repeats = required_whole<std::int32_t>(in, "repeats", 0);
    each(in, "rank_runs", [&](JsonReader& item) { record.rank_runs.push_back(rank_run(item)); });
    if (!columns) each(in, "ops", [&](JsonReader& item) { record.ops.push_back(op(item)); });
    record.step_ps = integers(in, "step_ps");
    record.device_peak_bytes = required_whole<std::int64_t>(in, "device_peak_bytes", 0);
    each(in, "numerics", [&](JsonReader& item) { record.numerics.push_back(numerics(item)); });
    each(in, "exclusions", [&](JsonReader& item) { record.exclusions.push_back(exclusion(item)); });
    if (const Json* value = in.required("failure", "an object")) record.failure = failure(*value, in);
    if (columns) record.ops = read_op_columns(in, record.ranks, record.repeats, !record.failure.kind.empty());
    in.finish();
    if (!columns) check_ops(record);
    check_ranks(record);
    return record;
  }

 private:
  static std::uint64_t hash(JsonReader& in, std::string_view key) {
    const std::string digits = required_text(in, key);
    std::uint64_t value = 0;
    const bool hexadecimal = digits.size() == 16 && digits.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!hexadecimal) {
      in.add_error(key, fmt::format("is \"{}\"", digits), "16 hexadecimal digits");
      return 0;
    }
    for (const char c : digits) value = value * 16 + static_cast<std::uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    return value;
  }
  // A number, or null for infinity.
  static double number(JsonReader& in, std::string_view key) {
    const Json* value = in.required(key, "a number or null");
    if (value == nullptr) return 0;
    if (value->is_null()) return std::numeric_limits<double>::infinity();
    return in.number(key, 0, std::numeric_limits<double>::max()).value_or(0);
  }
  std::vector<std::int64_t> integers(JsonReader& in, std::string_view key,
                                     const char* of = "a whole number of picoseconds") {
    std::vector<std::int64_t> values;
    const Json* list = in.required(key, "a list of whole numbers");
    if (list == nullptr) return values;
    if (!list->is_array()) {
      in.add_error(key, "is " + describe(*list), "a list of whole numbers");
      return values;
    }
    for (std::size_t i = 0; i < list->size(); ++i) {
      const Json& item = (*list)[i];
      if (const std::optional<std::int64_t> value = whole_number(item)) {
        values.push_back(*value);
      } else {
        in.add_error(fmt::format("{}/{}", key, i), "is " + describe(item), of);
      }
    }
    return values;
  }
  std::vector<std::string> texts(JsonReader& in, std::string_view key) {
    std::vector<std::string> values;
    const Json* list = in.required(key, "a list of text");
    if (list == nullptr) return values;
    if (!list->is_array()) {
      in.add_error(key, "is " + describe(*list), "a list of text");
      return values;
    }
    for (const Json& item : *list) {
      if (item.is_string()) {
        values.push_back(item.get<std::string>());
      } else {
        in.add_error(key, "holds " + describe(item), "a list of text");
      }
    }
    return values;
  }
  template <class Item>
  void each(JsonReader& in, std::string_view key, Item&& item) {
    each_object(in, key, [&](JsonReader& reader) {
      item(reader);
      reader.finish();
    });
  }

  RunIdentity identity(const Json& json, JsonReader& outer) {
    JsonReader in(json, file_, outer.child_path("identity"), errors_);
    RunIdentity of;
    of.study = required_text(in, "study");
    of.study_case = required_text(in, "case");
    of.strategy = required_text(in, "strategy");
    of.study_file = required_text(in, "study_file");
    of.reductions = texts(in, "reductions");
    of.fingerprint = hash(in, "fingerprint");
    of.seed = hash(in, "seed");
    of.date = required_text(in, "date");
    of.git = required_text(in, "git");
    of.version = required_text(in, "version");
    in.finish();
    return of;
  }

  HardwareInfo hardware(const Json& json, JsonReader& outer) {
    JsonReader in(json, file_, outer.child_path("hardware"), errors_);
    HardwareInfo of;
    of.device = required_text(in, "device");
    of.devices = required_whole<std::int32_t>(in, "devices", 1);
    of.device_memory_bytes = required_whole<std::int64_t>(in, "device_memory_bytes", 0);
    of.multiprocessors = required_whole<std::int32_t>(in, "multiprocessors", 0);
    of.compute_capability = required_text(in, "compute_capability");
    of.driver = required_text(in, "driver");
    of.cuda = required_text(in, "cuda");
    of.cublas = required_text(in, "cublas");
    of.cudnn = required_text(in, "cudnn");
    of.nccl = required_text(in, "nccl");
    of.sm_clock_mhz = required_whole<std::int32_t>(in, "sm_clock_mhz", 0);
    of.memory_clock_mhz = required_whole<std::int32_t>(in, "memory_clock_mhz", 0);
    of.sm_clock_before_mhz = required_whole<std::int32_t>(in, "sm_clock_before_mhz", 0);
    of.sm_clock_after_mhz = required_whole<std::int32_t>(in, "sm_clock_after_mhz", 0);
    of.temperature_before_c = required_whole<std::int32_t>(in, "temperature_before_c", 0);
    of.temperature_after_c = required_whole<std::int32_t>(in, "temperature_after_c", 0);
    of.power_before_w = required_whole<std::int32_t>(in, "power_before_w", 0);
    of.power_after_w = required_whole<std::int32_t>(in, "power_after_w", 0);
    in.finish();
    return of;
  }

  MeasuredOp op(JsonReader& in) {
    MeasuredOp of;
    of.rank = required_whole<std::int32_t>(in, "rank", 0);
    of.position = required_whole<std::int32_t>(in, "position", 0);
    of.stream = required_whole<StreamId>(in, "stream", 0);
    of.kind = required_name<OpKind>(in, "kind", op_kind_names());
    of.pass = required_name<Pass>(in, "pass", pass_names());
    of.function = required_name<Function>(in, "function", function_names());
    of.collective = required_name<CollectiveKind>(in, "collective", collective_names());
    of.segment = required_whole<SegmentId>(in, "segment", 0);
    of.index = required_whole<std::int16_t>(in, "index", 0);
    of.layer = required_whole<std::int16_t>(in, "layer", std::numeric_limits<std::int16_t>::min());
    of.chunk = required_whole<std::int32_t>(in, "chunk", -1);
    of.group = required_whole<GroupId>(in, "group", -1);
    of.label = required_text(in, "label");
    of.kernel = required_text(in, "kernel");
    of.bytes = required_whole<std::int64_t>(in, "bytes", 0);
    of.communication = required_flag(in, "communication");
    of.start_ps = integers(in, "start_ps");
    of.end_ps = integers(in, "end_ps");
    return of;
  }

  RankRun rank_run(JsonReader& in) {
    RankRun of;
    of.rank = required_whole<std::int32_t>(in, "rank", 0);
    of.device = required_whole<std::int32_t>(in, "device", 0);
    of.resident_bytes = required_whole<std::int64_t>(in, "resident_bytes", 0);
    of.planned_peak_bytes = required_whole<std::int64_t>(in, "planned_peak_bytes", 0);
    of.arena_bytes = required_whole<std::int64_t>(in, "arena_bytes", 0);
    of.scratch_bytes = required_whole<std::int64_t>(in, "scratch_bytes", 0);
    of.device_peak_bytes = required_whole<std::int64_t>(in, "device_peak_bytes", 0);
    of.step_ps = integers(in, "step_ps");
    if (in.has("clock_mhz")) {
      for (const std::int64_t clock : integers(in, "clock_mhz", "a whole number of MHz")) {
        of.clock_mhz.push_back(static_cast<std::int32_t>(std::clamp<std::int64_t>(clock, -1, kMostMegahertz + 1)));
      }
    }
    return of;
  }

  NumericsResult numerics(JsonReader& in) {
    NumericsResult of;
    of.quantity = required_text(in, "quantity");
    of.reference = required_text(in, "reference");
    of.error = number(in, "error");
    of.undistributed_error = number(in, "undistributed_error");
    of.limit = number(in, "limit");
    of.elements = required_whole<std::int64_t>(in, "elements", 0);
    of.missing = required_whole<std::int64_t>(in, "missing", 0);
    of.worst = required_text(in, "worst");
    of.pass = required_flag(in, "pass");
    return of;
  }

  Exclusion exclusion(JsonReader& in) {
    Exclusion of;
    of.rank = required_whole<std::int32_t>(in, "rank", -1);
    of.position = required_whole<std::int32_t>(in, "position", -1);
    of.what = required_text(in, "what");
    of.reason = required_text(in, "reason");
    return of;
  }

  RunFailure failure(const Json& json, JsonReader& outer) {
    JsonReader in(json, file_, outer.child_path("failure"), errors_);
    RunFailure of;
    of.kind = required_text(in, "kind");
    of.message = required_text(in, "message");
    of.rank = required_whole<std::int32_t>(in, "rank", -1);
    of.position = required_whole<std::int32_t>(in, "position", -1);
    of.op = required_text(in, "op");
    of.kernel = required_text(in, "kernel");
    in.finish();
    return of;
  }

  void add(const std::string& path, std::string message, std::string expected) {
    errors_.push_back({file_, path, std::move(message), std::move(expected), ""});
  }

  // Lengths and order of times.
  void check_ops(const RunRecord& record) {
    const bool whole_run = record.failure.kind.empty();
    const auto repeats = static_cast<std::size_t>(record.repeats);
    for (std::size_t i = 0; i < record.ops.size(); ++i) {
      const MeasuredOp& op = record.ops[i];
      const std::string path = fmt::format("/ops/{}", i);
      if (op.rank >= record.ranks)
        add(path + "/rank", fmt::format("is {}", op.rank), fmt::format("below {}", record.ranks));
      if (op.start_ps.size() != op.end_ps.size() || (whole_run && op.start_ps.size() != repeats)) {
        add(path + "/start_ps", fmt::format("has {} times, end_ps has {}", op.start_ps.size(), op.end_ps.size()),
            fmt::format("one a repeat: {}", record.repeats));
        continue;
      }
      for (std::size_t k = 0; k < op.start_ps.size(); ++k) {
        if (op.start_ps[k] < 0) {
          add(fmt::format("{}/start_ps/{}", path, k), fmt::format("is {}", op.start_ps[k]), "at least 0");
        }
        if (op.start_ps[k] <= op.end_ps[k]) continue;
        add(fmt::format("{}/end_ps/{}", path, k), fmt::format("is {}", op.end_ps[k]),
            fmt::format("at least the start, {}", op.start_ps[k]));
      }
    }
  }

  // `wanted`: how many whole steps there must be, unless the run failed.
  void check_steps(const RunRecord& record, const std::string& path, const std::vector<std::int64_t>& steps,
                   std::int32_t wanted, const char* expected) {
    if (record.failure.kind.empty() && steps.size() != static_cast<std::size_t>(wanted)) {
      add(path, fmt::format("has {} times", steps.size()), fmt::format("{}: {}", expected, wanted));
    }
    for (std::size_t k = 0; k < steps.size(); ++k) {
      if (steps[k] < 0) add(fmt::format("{}/{}", path, k), fmt::format("is {}", steps[k]), "at least 0");
    }
  }

  void check_ranks(const RunRecord& record) {
    std::set<std::int32_t> seen;
    for (std::size_t i = 0; i < record.rank_runs.size(); ++i) {
      const RankRun& run = record.rank_runs[i];
      const std::string path = fmt::format("/rank_runs/{}", i);
      if (run.rank >= record.ranks || !seen.insert(run.rank).second) {
        add(path + "/rank", fmt::format("is {}", run.rank), fmt::format("below {}, each rank once", record.ranks));
      }
      check_steps(record, path + "/step_ps", run.step_ps, record.repeats, "one a repeat");
      if (!run.clock_mhz.empty() && run.clock_mhz.size() != run.step_ps.size()) {
        add(path + "/clock_mhz", fmt::format("has {} clocks", run.clock_mhz.size()),
            fmt::format("one a step: {}", run.step_ps.size()));
      }
      for (std::size_t k = 0; k < run.clock_mhz.size(); ++k) {
        if (run.clock_mhz[k] >= 0 && run.clock_mhz[k] <= kMostMegahertz) continue;
        add(fmt::format("{}/clock_mhz/{}", path, k), "is no clock", fmt::format("0 to {} MHz", kMostMegahertz));
      }
    }
    if (record.rank_runs.size() != static_cast<std::size_t>(record.ranks) && record.failure.kind.empty() && !part_) {
      add("/rank_runs", fmt::format("has {} entries", record.rank_runs.size()),
          fmt::format("one a rank: {}", record.ranks));
    }
    const bool together = record.placement == RankPlacement::kReal;
    check_steps(record, "/step_ps", record.step_ps, together ? record.repeats : 0,
                together ? "one a repeat" : "none of virtual ranks");
  }

  std::string file_;
  Errors& errors_;
  bool part_;
};

}  // namespace

nlohmann::ordered_json to_json(const RunRecord& record) {
  return record_json(record, kFormat, [&](Json& json) {
    json["ops"] = Json::array();
    for (const MeasuredOp& op : record.ops) json["ops"].push_back(op_json(op));
  });
}

nlohmann::ordered_json to_columns_json(const RunRecord& record) {
  return record_json(record, kColumnsFormat, [&](Json& json) { add_op_columns(record.ops, json); });
}

Expected<RunRecord> run_record_from_json(const nlohmann::ordered_json& json, const std::string& file, bool part) {
  Errors errors;
  RunRecord record = RecordReader(file, errors, part).read(json);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return record;
}

Expected<RunRecord> read_run_record(const std::string& file) {
  const Expected<Json> json = read_json_file(file);
  if (!json) return tl::unexpected(json.error());
  return run_record_from_json(*json, file);
}

void write_run_record(const RunRecord& record, const std::string& file) {
  const std::string temporary = file + ".partial";
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  // One op a line: readable, and a tenth of the size of an indented file.
  Json head = to_json(record);
  const Json ops = head["ops"];
  head["ops"] = Json::array();
  std::string text = head.dump(1);
  std::string lines;
  for (const Json& op : ops) lines += (lines.empty() ? "\n  " : ",\n  ") + op.dump();
  const std::string empty = "\"ops\": []";
  text.replace(text.find(empty), empty.size(), "\"ops\": [" + lines + (lines.empty() ? "]" : "\n ]"));
  out << text << '\n';
  out.close();
  if (!out || std::rename(temporary.c_str(), file.c_str()) != 0) {
    std::remove(temporary.c_str());
    throw LimitError(fmt::format("cannot write {}: {}", file, std::strerror(errno)));
  }
}

}  // namespace longhaul
