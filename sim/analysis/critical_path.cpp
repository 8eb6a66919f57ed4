#include "sim/analysis/critical_path.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "sim/core/invariant.h"
#include "sim/executor/simulate.h"

namespace longhaul {
namespace {

enum FixedClass : std::int32_t {
  kAttention,
  kGemm,
  kMemoryBound,
  kHostCopy,
  kOptimizer,
  kLaunch,
  kPipelineEdge,
  kFirstRole,  // and one for each group role
};

std::vector<std::string> class_names(const Schedule& schedule) {
  std::vector<std::string> names = {"attention", "gemm",   "memory-bound", "host copy",
                                    "optimizer", "launch", "pipeline edge"};
  for (const std::string& role : schedule.roles) names.push_back(role + " collective");
  return names;
}

std::int32_t class_of(const Schedule& schedule, const OpRecord& record) {
  if (record.kind == OpKind::kCollective) {
    const Op& op =
        schedule.segments[static_cast<std::size_t>(record.segment)].ops[static_cast<std::size_t>(record.index)];
    return op.pipeline_edge ? kPipelineEdge : kFirstRole + op.role;
  }
  if (record.stream == kCopyInStream || record.stream == kCopyOutStream) return kHostCopy;
  if (record.pass == Pass::kOptimizer) return kOptimizer;
  if (record.kind == OpKind::kAttention) return kAttention;
  return record.kind == OpKind::kGemm ? kGemm : kMemoryBound;
}

// Finds the other members of a collective: the n-th call of a group on one rank meets the n-th on every other.
class Meetings {
 public:
  explicit Meetings(const OpGraph& graph) : graph_(&graph) {
    for (const std::vector<std::int32_t>& launched : graph.by_rank) {
      for (const std::int32_t record : launched) {
        if (of(record).kind == OpKind::kCollective) calls_.push_back(record);
      }
    }
    // Stable: calls of one group and rank stay in launch order.
    std::stable_sort(calls_.begin(), calls_.end(), [&](std::int32_t a, std::int32_t b) {
      return std::tie(of(a).group, of(a).rank) < std::tie(of(b).group, of(b).rank);
    });
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const OpRecord& call = of(calls_[i]);
      if (runs_.empty() || runs_.back().group != call.group || runs_.back().rank != call.rank) {
        runs_.push_back({call.group, call.rank, i});
      }
    }
  }

  // Among the members that arrived last: `record` itself, or else that of the lowest rank.
  std::int32_t last_member(std::int32_t record) const {
    const OpRecord& call = of(record);
    if (call.arrival == call.start) return record;
    const auto of_group = [&](const Run& run, GroupId group) { return run.group < group; };
    const auto first = std::lower_bound(runs_.begin(), runs_.end(), call.group, of_group);
    const auto own = std::find_if(first, runs_.end(), [&](const Run& run) { return run.rank == call.rank; });
    const auto place = [&](std::int32_t a, std::int32_t b) {
      return graph_->place[static_cast<std::size_t>(a)] < graph_->place[static_cast<std::size_t>(b)];
    };
    const auto begin = calls_.begin() + static_cast<std::ptrdiff_t>(own->begin);
    const auto end = calls_.begin() + static_cast<std::ptrdiff_t>(end_of(own));
    const auto number = static_cast<std::size_t>(std::lower_bound(begin, end, record, place) - begin);
    for (auto run = first; run != runs_.end() && run->group == call.group; ++run) {
      LH_ASSERT(run->begin + number < end_of(run), "rank {} is not in call {} of group {}", run->rank, number,
                call.group);
      const std::int32_t other = calls_[run->begin + number];
      LH_ASSERT(of(other).start == call.start && of(other).end == call.end,
                "call {} of group {}: ranks {} and {} differ in its times", number, call.group, call.rank, run->rank);
      if (of(other).arrival == call.start) return other;
    }
    LH_ASSERT(false, "call {} of group {} starts at {} ps, when nobody arrives", number, call.group, call.start.ps());
    return -1;
  }

 private:
  struct Run {  // the calls of one group on one rank
    GroupId group;
    std::int32_t rank;
    std::size_t begin;
  };

  const OpRecord& of(std::int32_t record) const { return graph_->records[static_cast<std::size_t>(record)]; }
  std::size_t end_of(std::vector<Run>::const_iterator run) const {
    return run + 1 == runs_.end() ? calls_.size() : (run + 1)->begin;
  }

  const OpGraph* graph_;
  std::vector<std::int32_t> calls_;
  std::vector<Run> runs_;  // by group, then rank
};

// Goes back from the end of the step to time zero.
class Walker {
 public:
  Walker(const Schedule& schedule, const OpGraph& graph) : schedule_(&schedule), graph_(&graph), meetings_(graph) {}

  // Segments in reverse order, not merged.
  std::vector<PathSegment> run() {
    std::int32_t at = last_op();
    if (at >= 0) now_ = of(at).end;
    // Each op is at most once on the path.
    for (std::size_t visited = 0; at >= 0; ++visited) {
      LH_ASSERT(visited < graph_->records.size(), "the critical path goes in a circle at {} ps", now_.ps());
      at = before(at);
    }
    LH_ASSERT(now_ == Time::zero(), "the critical path begins at {} ps", now_.ps());
    return std::move(segments_);
  }

 private:
  const OpRecord& of(std::int32_t record) const { return graph_->records[static_cast<std::size_t>(record)]; }

  std::int32_t last_op() const {
    std::int32_t last = -1;
    const auto streams = static_cast<std::size_t>(graph_->streams);
    for (std::size_t stream = 0; stream < streams; ++stream) {
      for (std::size_t rank = 0; rank < graph_->by_rank.size(); ++rank) {
        const std::vector<std::int32_t>& ran = graph_->by_stream[rank * streams + stream];
        if (!ran.empty() && (last < 0 || of(ran.back()).end > of(last).end)) last = ran.back();
      }
    }
    return last;
  }

  void add(PathSegment segment) {
    segment.end = now_;
    if (segment.begin != segment.end) segments_.push_back(segment);
    now_ = segment.begin;
  }

  // Puts the op on the path and returns the op that its start waited for; -1 at time zero.
  std::int32_t before(std::int32_t at) {
    const OpRecord& op = of(at);
    LH_ASSERT(op.end == now_ && op.start <= op.end, "rank {}: `{}` ends at {} ps, not at {} ps", op.rank, op.label,
              op.end.ps(), now_.ps());
    add({op.rank, op.stream, op.label, class_of(*schedule_, op), op.pass, op.layer, op.chunk, 1, op.start, {}});
    if (op.kind == OpKind::kCollective) at = meetings_.last_member(at);
    return before_start(at);
  }

  // The op that the start of `at`, now, waited for.
  std::int32_t before_start(std::int32_t at) {
    LH_ASSERT(of(at).arrival == now_, "rank {}: `{}` starts at {} ps, it arrived at {} ps", of(at).rank, of(at).label,
              now_.ps(), of(at).arrival.ps());
    for (const std::int32_t cause : graph_->waits_of(at)) {
      if (of(cause).end == now_) return cause;
    }
    if (of(at).issue == now_) return before_launch(at);
    const std::int32_t holder = of(at).kind == OpKind::kCollective ? holder_of(at) : -1;
    LH_ASSERT(holder >= 0, "rank {}: `{}` arrives at {} ps without a cause", of(at).rank, of(at).label, now_.ps());
    return before_part(holder);
  }

  // The kernel that was before the collective on the device and runs up to now or beyond: a GEMM or an attention call
  // if there are several. -1 if there is none.
  std::int32_t holder_of(std::int32_t at) const {
    const auto streams = static_cast<std::size_t>(graph_->streams);
    const std::size_t first = static_cast<std::size_t>(of(at).rank) * streams;
    std::int32_t holder = -1;
    for (std::size_t stream = 0; stream < streams; ++stream) {
      const std::vector<std::int32_t>& ran = graph_->by_stream[first + stream];
      const auto ended =
          std::lower_bound(ran.begin(), ran.end(), now_, [&](std::int32_t r, Time t) { return of(r).end < t; });
      for (auto op = ended; op != ran.end() && of(*op).start < now_; ++op) {
        if (of(*op).kind == OpKind::kCollective || of(*op).start > of(at).called) continue;
        if (of(*op).kind == OpKind::kGemm || of(*op).kind == OpKind::kAttention) return *op;
        if (holder < 0) holder = *op;
      }
    }
    return holder;
  }

  // Puts the op on the path from its start to now, the beginning of its last wave.
  std::int32_t before_part(std::int32_t at) {
    const OpRecord& op = of(at);
    add({op.rank, op.stream, op.label, class_of(*schedule_, op), op.pass, op.layer, op.chunk, 1, op.start, {}});
    return before_start(at);
  }

  // Puts the host on the path, back to where it began to launch without a pause.
  std::int32_t before_launch(std::int32_t at) {
    const OpRecord& op = of(at);
    const std::vector<std::int32_t>& launched = graph_->by_rank[static_cast<std::size_t>(op.rank)];
    const auto place = static_cast<std::size_t>(graph_->place[static_cast<std::size_t>(at)]);
    std::size_t first = place;
    while (first > 0 && of(launched[first - 1]).issue == of(launched[first]).host) --first;
    const Time begin = of(launched[first]).host;
    const auto count = static_cast<std::int64_t>(place - first) + 1;
    add({op.rank, kHostStream, "launch", kLaunch, op.pass, op.layer, op.chunk, count, begin, {}});
    if (begin == Time::zero()) return -1;
    const std::int32_t previous = first > 0 ? launched[first - 1] : -1;
    return previous >= 0 && of(previous).stalled == begin ? before_stall(previous) : made_room(op.rank, first);
  }

  // Puts the stall of the op on the path, at whose end the host went on.
  std::int32_t before_stall(std::int32_t at) {
    const OpRecord& op = of(at);
    add({op.rank, op.stream, op.label, class_of(*schedule_, op), op.pass, op.layer, op.chunk, 1, op.start, {}});
    return before_start(at);
  }

  // The op whose end let the host go on with the op at `first` of the launch order.
  std::int32_t made_room(std::int32_t rank, std::size_t first) const {
    const auto streams = static_cast<std::size_t>(graph_->streams);
    for (std::size_t stream = 0; stream < streams; ++stream) {
      const std::vector<std::int32_t>& ran = graph_->by_stream[static_cast<std::size_t>(rank) * streams + stream];
      auto after =
          std::upper_bound(ran.begin(), ran.end(), now_, [&](Time t, std::int32_t r) { return t < of(r).end; });
      while (after != ran.begin() && of(*(after - 1)).end == now_) {
        --after;
        if (static_cast<std::size_t>(graph_->place[static_cast<std::size_t>(*after)]) < first) return *after;
      }
    }
    LH_ASSERT(false, "rank {}: its host goes on at {} ps without a cause", rank, now_.ps());
    return -1;
  }

  const Schedule* schedule_;
  const OpGraph* graph_;
  Meetings meetings_;
  Time now_;
  std::vector<PathSegment> segments_;
};

bool alike(const PathSegment& a, const PathSegment& b) {
  const auto key = [](const PathSegment& s) {
    return std::tie(s.rank, s.stream, s.label, s.path_class, s.pass, s.layer, s.chunk);
  };
  return key(a) == key(b);
}

// Sums by class, the longest first, and makes the segments point at them.
void add_classes(const std::vector<std::string>& names, CriticalPath& path) {
  std::vector<PathClass> sums;
  for (const std::string& name : names) sums.push_back({name, Time::zero(), 0});
  for (const PathSegment& segment : path.segments) {
    PathClass& sum = sums[static_cast<std::size_t>(segment.path_class)];
    sum.time += segment.time();
    sum.ops += segment.ops;
  }
  std::vector<std::size_t> order(sums.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return sums[a].time != sums[b].time ? sums[a].time > sums[b].time : sums[a].name < sums[b].name;
  });
  std::vector<std::int32_t> moved(sums.size(), -1);
  for (const std::size_t i : order) {
    if (sums[i].ops == 0) continue;
    moved[i] = static_cast<std::int32_t>(path.classes.size());
    path.classes.push_back(sums[i]);
  }
  for (PathSegment& segment : path.segments) segment.path_class = moved[static_cast<std::size_t>(segment.path_class)];
}

class OpsOnly : public TimelineSink {
 public:
  void op(const OpRecord& record) override { ops.push_back(record); }
  void memory(std::int32_t, Time, std::int64_t, const MemoryByCategory&) override {}
  std::vector<OpRecord> ops;
};

bool runs(const Schedule& schedule, std::size_t rank) {
  const std::int32_t representative = schedule.ranks[rank].representative;
  return representative < 0 || static_cast<std::size_t>(representative) == rank;
}

}  // namespace

CriticalPath critical_path(const Schedule& schedule, const OpGraph& graph) {
  CriticalPath path;
  const std::vector<PathSegment> reversed = Walker(schedule, graph).run();
  Time sum;
  for (auto segment = reversed.rbegin(); segment != reversed.rend(); ++segment) {
    LH_ASSERT(segment->begin == sum && segment->end > sum, "the critical path has a gap at {} ps", sum.ps());
    sum = segment->end;
    if (!path.segments.empty() && path.segments.back().rank != segment->rank) ++path.hops;
    if (!path.segments.empty() && alike(path.segments.back(), *segment)) {
      path.segments.back().end = segment->end;
      path.segments.back().ops += segment->ops;
    } else {
      path.segments.push_back(*segment);
    }
  }
  path.step = sum;
  add_classes(class_names(schedule), path);
  return path;
}

std::vector<PathStretch> longest_stretches(const CriticalPath& path, std::size_t count) {
  std::vector<PathStretch> stretches;
  std::vector<Time> by_class(path.classes.size());
  for (std::size_t i = 0; i < path.segments.size(); ++i) {
    const PathSegment& segment = path.segments[i];
    if (stretches.empty() || stretches.back().rank != segment.rank) {
      stretches.push_back({segment.rank, segment.begin, segment.begin, 0, segment.path_class, Time::zero(), i});
      std::fill(by_class.begin(), by_class.end(), Time::zero());
    }
    PathStretch& stretch = stretches.back();
    stretch.end = segment.end;
    stretch.ops += segment.ops;
    if (segment.time() > path.segments[stretch.longest].time()) stretch.longest = i;
    by_class[static_cast<std::size_t>(segment.path_class)] += segment.time();
    const auto most = std::max_element(by_class.begin(), by_class.end());
    stretch.most = static_cast<std::int32_t>(most - by_class.begin());
    stretch.most_time = *most;
  }
  std::stable_sort(stretches.begin(), stretches.end(),
                   [](const PathStretch& a, const PathStretch& b) { return a.time() > b.time(); });
  stretches.resize(std::min(stretches.size(), count));
  return stretches;
}

std::int64_t count_running_ops(const Schedule& schedule, std::int64_t limit) {
  std::int64_t ops = 0;
  for (std::size_t rank = 0; rank < schedule.ranks.size() && ops <= limit; ++rank) {
    if (!runs(schedule, rank)) continue;
    Cursor cursor(static_cast<std::int32_t>(rank));
    OpInstance at;
    while (ops <= limit && cursor.next(schedule, at)) ++ops;
  }
  return ops;
}

std::optional<CriticalPath> trace_critical_path(const Schedule& schedule, const Cluster& cluster,
                                                const KernelModel& kernels, std::int64_t limit) {
  if (count_running_ops(schedule, limit) > limit) return std::nullopt;
  OpsOnly sink;
  SimulationOptions options;
  options.sink = &sink;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    if (runs(schedule, rank)) options.trace.ranks.push_back(static_cast<std::int32_t>(rank));
  }
  const Totals totals = simulate(schedule, cluster, kernels, options);
  const OpGraph graph = link_ops(schedule, std::move(sink.ops));
  CriticalPath path = critical_path(schedule, graph);
  LH_ASSERT(path.step == totals.step, "the critical path takes {} ps, the step {} ps", path.step.ps(),
            totals.step.ps());
  return path;
}

}  // namespace longhaul
