#include "validate/device/op_columns.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "sim/core/invariant.h"
#include "validate/device/record_fields.h"

namespace longhaul {
namespace {

constexpr std::int64_t kMostPs = std::numeric_limits<std::int64_t>::max();

struct Clock {
  std::int64_t tick_ps = 1;
  bool float_ms = false;

  // Highest number of ticks whose time has 63 bits; floats may be rounded up, so they keep to 62.
  std::int64_t most() const { return (float_ms ? kMostPs / 2 : kMostPs) / tick_ps; }
  // Of 0 <= ticks <= most(). Never falls as ticks rise.
  std::int64_t picoseconds(std::int64_t ticks) const {
    if (!float_ms) return ticks * tick_ps;
    const auto milliseconds = static_cast<float>(static_cast<double>(ticks * tick_ps) / 1e9);
    return std::llround(static_cast<double>(milliseconds) * 1e9);
  }
  std::int64_t nearest_ticks(std::int64_t ps) const { return ps / tick_ps + (ps % tick_ps >= (tick_ps + 1) / 2); }
  bool gives_back(std::int64_t ps) const {
    if (ps < 0 || ps > kMostPs / 2 - tick_ps) return false;
    return picoseconds(nearest_ticks(ps)) == ps;
  }
};

// The resolution of events on GPUs of the kinds that we have measured.
constexpr Clock kEvents{32'000, true};

Clock clock_of(const std::vector<MeasuredOp>& ops) {
  for (const MeasuredOp& op : ops) {
    for (const auto* times : {&op.start_ps, &op.end_ps}) {
      for (const std::int64_t ps : *times) {
        if (!kEvents.gives_back(ps)) return {};
      }
    }
  }
  return kEvents;
}

// ---- writing

Json template_json(const MeasuredOp& of) {
  Json json = {{"label", of.label},
               {"kind", name_in(op_kind_names(), of.kind)},
               {"pass", name_in(pass_names(), of.pass)},
               {"stream", of.stream},
               {"index", of.index},
               {"kernel", of.kernel},
               {"bytes", of.bytes}};
  if (of.function != Function::kNone) json["function"] = name_in(function_names(), of.function);
  if (of.kind == OpKind::kCollective || of.collective != CollectiveKind::kExchange) {
    json["collective"] = name_in(collective_names(), of.collective);
  }
  if (of.group != -1) json["group"] = of.group;
  if (of.communication) json["communication"] = true;
  return json;
}

// Appends `value`: as it is, or one more of the same.
void append_alike(Json& column, std::int64_t value) {
  if (!column.empty()) {
    Json& last = column.back();
    if (last.is_array() && last[0] == value) {
      last[1] = last[1].get<std::int64_t>() + 1;
      return;
    }
    if (last == value) {
      last = Json::array({value, 2});
      return;
    }
  }
  column.push_back(value);
}

class BlockWriter {
 public:
  BlockWriter(const MeasuredOp& first, const Clock& clock)
      : clock_(clock),
        rank_(first.rank),
        gaps_(first.start_ps.size()),
        durations_(first.start_ps.size()),
        ends_(first.start_ps.size()) {}

  bool takes(const MeasuredOp& op) const { return op.rank == rank_ && op.start_ps.size() == ends_.size(); }

  void add(const MeasuredOp& op, std::int64_t number) {
    templates_.push_back(number);
    append_alike(steps_, std::int64_t{op.position} - position_);
    position_ = op.position;
    append_alike(segments_, op.segment);
    append_alike(layers_, op.layer);
    append_alike(chunks_, op.chunk);
    for (std::size_t r = 0; r < ends_.size(); ++r) {
      const std::int64_t start = clock_.nearest_ticks(op.start_ps[r]);
      const std::int64_t end = clock_.nearest_ticks(op.end_ps[r]);
      gaps_[r].push_back(start - ends_[r]);
      durations_[r].push_back(end - start);
      ends_[r] = end;
    }
  }

  Json json() const {
    return {{"rank", rank_},    {"template", templates_}, {"position_step", steps_}, {"segment", segments_},
            {"layer", layers_}, {"chunk", chunks_},       {"gap_ticks", gaps_},      {"duration_ticks", durations_}};
  }

 private:
  Clock clock_;
  std::int32_t rank_;
  std::int64_t position_ = -1;
  std::vector<std::int64_t> templates_;
  Json steps_ = Json::array(), segments_ = Json::array(), layers_ = Json::array(), chunks_ = Json::array();
  std::vector<std::vector<std::int64_t>> gaps_, durations_;  // by repeat
  std::vector<std::int64_t> ends_;                           // ticks, of the op before
};

// ---- reading

MeasuredOp read_template(JsonReader& in) {
  MeasuredOp of;
  of.label = required_text(in, "label");
  of.kind = required_name<OpKind>(in, "kind", op_kind_names());
  of.pass = required_name<Pass>(in, "pass", pass_names());
  of.stream = required_whole<StreamId>(in, "stream", 0);
  of.index = required_whole<std::int16_t>(in, "index", 0);
  of.kernel = required_text(in, "kernel");
  of.bytes = required_whole<std::int64_t>(in, "bytes", 0);
  if (in.has("function")) of.function = required_name<Function>(in, "function", function_names());
  if (in.has("collective")) of.collective = required_name<CollectiveKind>(in, "collective", collective_names());
  if (in.has("group")) of.group = required_whole<GroupId>(in, "group", -1);
  if (in.has("communication")) of.communication = required_flag(in, "communication");
  in.finish();
  return of;
}

class BlockReader {
 public:
  BlockReader(JsonReader& in, const Clock& clock, const std::vector<MeasuredOp>& templates,
              std::vector<MeasuredOp>& ops)
      : in_(in), clock_(clock), templates_(templates), ops_(ops), first_(ops.size()) {}

  void read(std::int32_t ranks, std::int32_t repeats, bool failed) {
    const auto rank = required_whole<std::int32_t>(in_, "rank", 0);
    if (rank >= ranks) in_.add_error("rank", fmt::format("is {}", rank), fmt::format("below {}", ranks));
    read_templates(rank);
    std::int64_t position = -1;
    column("position_step", kAnyNumber, [&](MeasuredOp& op, std::int64_t step, const std::string& place) {
      position += step;  // both have 32 bits, or it has been said
      if (position < 0 || position > kMost32) {
        in_.add_error(place, fmt::format("leads to position {}", position), fmt::format("0 to {}", kMost32));
        position = 0;
      }
      op.position = static_cast<std::int32_t>(position);
    });
    column("segment", {0, std::numeric_limits<SegmentId>::max()},
           [](MeasuredOp& op, std::int64_t value, const std::string&) { op.segment = static_cast<SegmentId>(value); });
    column("layer", {std::numeric_limits<std::int16_t>::min(), std::numeric_limits<std::int16_t>::max()},
           [](MeasuredOp& op, std::int64_t value, const std::string&) { op.layer = static_cast<std::int16_t>(value); });
    column("chunk", {-1, kMost32},
           [](MeasuredOp& op, std::int64_t value, const std::string&) { op.chunk = static_cast<std::int32_t>(value); });
    read_times(repeats, failed);
    in_.finish();
  }

 private:
  struct Range {
    std::int64_t low, high;
  };
  static constexpr std::int64_t kMost32 = std::numeric_limits<std::int32_t>::max();
  static constexpr Range kAnyNumber{-kMost32 - 1, kMost32 + 1};

  std::size_t count() const { return ops_.size() - first_; }

  // A list at `key`, or nullptr, which has been said.
  const Json* list(std::string_view key, std::string_view expected) {
    const Json* value = in_.required(key, expected);
    if (value == nullptr || value->is_array()) return value;
    in_.add_error(key, "is " + describe(*value), std::string(expected));
    return nullptr;
  }

  std::optional<std::int64_t> number(const Json& value, const std::string& place, const Range& range) {
    const std::optional<std::int64_t> read = whole_number(value);
    if (read && *read >= range.low && *read <= range.high) return read;
    in_.add_error(place, "is " + describe(value), fmt::format("a whole number, {} to {}", range.low, range.high));
    return std::nullopt;
  }

  void read_templates(std::int32_t rank) {
    const Json* numbers = list("template", "a list of template numbers");
    if (numbers == nullptr) return;
    for (std::size_t i = 0; i < numbers->size(); ++i) {
      const std::optional<std::int64_t> read = whole_number((*numbers)[i]);
      const bool known = read && *read >= 0 && static_cast<std::size_t>(*read) < templates_.size();
      if (!known) {
        in_.add_error(fmt::format("template/{}", i), "is " + describe((*numbers)[i]),
                      fmt::format("the number of one of {} templates, from 0", templates_.size()));
      }
      ops_.push_back(known ? templates_[static_cast<std::size_t>(*read)] : MeasuredOp{});
      ops_.back().rank = rank;
    }
  }

  // Gives each op its value of a column in which [value, n] stands for n ops.
  template <class Take>
  void column(std::string_view key, const Range& range, Take&& take) {
    const Json* values = list(key, "a list of whole numbers and of [number, times]");
    if (values == nullptr) return;
    constexpr std::int64_t kMostTimes = std::numeric_limits<std::int32_t>::max();
    std::size_t filled = 0;  // may go beyond the ops
    for (std::size_t i = 0; i < values->size(); ++i) {
      const Json& item = (*values)[i];
      const std::string place = fmt::format("{}/{}", key, i);
      std::optional<std::int64_t> value, times = 1;
      if (item.is_array() && item.size() == 2) {
        value = number(item[0], place + "/0", range);
        times = number(item[1], place + "/1", {1, kMostTimes});
      } else if (item.is_array()) {
        in_.add_error(place, fmt::format("has {} values", item.size()), "two: [number, times]");
      } else {
        value = number(item, place, range);
      }
      const auto end = filled + static_cast<std::size_t>(times.value_or(1));
      for (std::size_t at = filled; at < std::min(end, count()) && value; ++at) take(ops_[first_ + at], *value, place);
      filled = end;
    }
    if (filled != count()) {
      in_.add_error(key, fmt::format("has values for {} ops", filled), fmt::format("as many as template: {}", count()));
    }
  }

  void read_times(std::int32_t repeats, bool failed) {
    constexpr std::string_view kExpected = "a list of times for each repeat";
    const Json* gaps = list("gap_ticks", kExpected);
    const Json* durations = list("duration_ticks", kExpected);
    if (gaps == nullptr || durations == nullptr) return;
    const bool complete = failed || gaps->size() == static_cast<std::size_t>(repeats);
    if (!complete || gaps->size() != durations->size()) {
      in_.add_error("gap_ticks", fmt::format("has {} lists, duration_ticks has {}", gaps->size(), durations->size()),
                    fmt::format("one a repeat: {}", repeats));
      return;
    }
    for (std::size_t r = 0; r < gaps->size(); ++r) {
      const bool gaps_fit = of_all_ops((*gaps)[r], fmt::format("gap_ticks/{}", r));
      const bool durations_fit = of_all_ops((*durations)[r], fmt::format("duration_ticks/{}", r));
      if (gaps_fit && durations_fit) read_repeat((*gaps)[r], (*durations)[r], r);
    }
  }

  bool of_all_ops(const Json& times, const std::string& place) {
    if (times.is_array() && times.size() == count()) return true;
    in_.add_error(place, times.is_array() ? fmt::format("has {} values", times.size()) : "is " + describe(times),
                  fmt::format("as many as template: {}", count()));
    return false;
  }

  void read_repeat(const Json& gaps, const Json& durations, std::size_t repeat) {
    const std::int64_t most = clock_.most();
    std::int64_t end = 0;  // of the op before
    for (std::size_t i = 0; i < count(); ++i) {
      const std::string gap_at = fmt::format("gap_ticks/{}/{}", repeat, i);
      const std::string duration_at = fmt::format("duration_ticks/{}/{}", repeat, i);
      const std::optional<std::int64_t> gap = number(gaps[i], gap_at, {-most, most});
      const std::optional<std::int64_t> duration = number(durations[i], duration_at, {0, most});
      if (!gap || !duration) continue;
      if (*gap < -end) {
        in_.add_error(gap_at, fmt::format("leads to a start at {} ticks", end + *gap), "at least 0");
        continue;
      }
      if (*gap > most - end || *duration > most - (end + *gap)) {
        in_.add_error(gap_at, "leads to times beyond 63 bits", fmt::format("at most {} ticks", most));
        continue;
      }
      const std::int64_t start = end + *gap;
      end = start + *duration;
      MeasuredOp& op = ops_[first_ + i];
      op.start_ps.push_back(clock_.picoseconds(start));
      op.end_ps.push_back(clock_.picoseconds(end));
    }
  }

  JsonReader& in_;
  Clock clock_;
  const std::vector<MeasuredOp>& templates_;
  std::vector<MeasuredOp>& ops_;
  std::size_t first_;  // of the block
};

Clock read_clock(JsonReader& in) {
  Clock clock;
  const Json* json = in.required("clock", "an object: tick_ps, float_ms");
  if (json == nullptr) return clock;
  JsonReader reader(*json, in.file(), in.child_path("clock"), in.errors());
  // A millisecond at most: a float of so many ticks is far from the limits of one.
  clock.tick_ps = reader.required_integer("tick_ps", 1, 1'000'000'000).value_or(1);
  clock.float_ms = required_flag(reader, "float_ms");
  reader.finish();
  return clock;
}

}  // namespace

void add_op_columns(const std::vector<MeasuredOp>& ops, Json& record) {
  const Clock clock = clock_of(ops);
  record["clock"] = {{"tick_ps", clock.tick_ps}, {"float_ms", clock.float_ms}};
  Json& templates = record["op_templates"] = Json::array();
  std::map<std::string, std::int64_t> numbers;  // by the template's text
  std::vector<BlockWriter> blocks;
  for (const MeasuredOp& op : ops) {
    LH_ASSERT(op.start_ps.size() == op.end_ps.size(), "op {} of rank {} has {} starts and {} ends", op.position,
              op.rank, op.start_ps.size(), op.end_ps.size());
    Json of = template_json(op);
    const auto [known, is_new] = numbers.try_emplace(of.dump(), static_cast<std::int64_t>(numbers.size()));
    if (is_new) templates.push_back(std::move(of));
    if (blocks.empty() || !blocks.back().takes(op)) blocks.emplace_back(op, clock);
    blocks.back().add(op, known->second);
  }
  Json& columns = record["op_blocks"] = Json::array();
  for (const BlockWriter& block : blocks) columns.push_back(block.json());
}

std::vector<MeasuredOp> read_op_columns(JsonReader& in, std::int32_t ranks, std::int32_t repeats, bool failed) {
  const Clock clock = read_clock(in);
  std::vector<MeasuredOp> templates, ops;
  each_object(in, "op_templates", [&](JsonReader& item) { templates.push_back(read_template(item)); });
  each_object(in, "op_blocks",
              [&](JsonReader& item) { BlockReader(item, clock, templates, ops).read(ranks, repeats, failed); });
  return ops;
}

}  // namespace longhaul
