// The critical path of a simulated step: the chain of ops, transfers and launches that its length is made of.
//
// Model. Back from the op that ends last, each op's cause is what its arrival waited for: an op of the same rank that
// it had to wait for and that ends at that time, or else the host that launched it, or else the kernel that held the
// multiprocessors which a collective needs, up to where it gave them back. A collective starts with its last member, so
// the path goes on at that member's arrival. The host is on the path for as long as it launches without a pause; before
// that the launch queue was full, and the path goes on at the op that made room, or the host had waited for the stream
// of an op with a stall, and it goes on in that stall.
// Ties: of ops the compute stream, then the lower stream; an op before the host; of members that arrive together the
// rank on which the path is, then the lowest.
//
// Units: Time. Invariants (asserted): segments follow each other without gap or overlap from 0 to the end of the step,
// so they sum to the step time exactly.
// Ignores: what contention and slow-down do: a stretched op counts whole, as what it is, not as what stretched it. So
// "the step shrinks by at most the time of a class" holds if all other ops take as long as before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/analysis/op_graph.h"
#include "sim/cluster/cluster.h"
#include "sim/executor/models.h"

namespace longhaul {

inline constexpr StreamId kHostStream = -1;  // of launch segments
// Steps of more ops than this (on ranks that are not folded away, empty ones included) are not traced for a path.
inline constexpr std::int64_t kCriticalPathOps = 2'000'000;

// Neighbours on the path that differ in nothing but their times are one segment.
struct PathSegment {
  std::int32_t rank = 0;
  StreamId stream = kComputeStream;
  std::string_view label;       // of the op, lives as long as the schedule; of the host: "launch"
  std::int32_t path_class = 0;  // index into CriticalPath::classes
  Pass pass = Pass::kForward;   // of the host: pass, layer and chunk of the op that waits for it
  std::int16_t layer = 0;
  std::int32_t chunk = 0;
  std::int64_t ops = 0;  // on the path; of the host: launches
  Time begin;
  Time end;

  Time time() const { return end - begin; }
};

// "attention", "gemm", "memory-bound" (element-wise, merges, moves in the device), "host copy", "optimizer" (kernels of
// that pass), "launch", "pipeline edge", and for each other group role its name and " collective".
struct PathClass {
  std::string name;
  Time time;  // on the path: without its ops the step would be shorter by at most this
  std::int64_t ops = 0;
};

struct CriticalPath {
  Time step;
  std::vector<PathSegment> segments;  // in time order
  std::vector<PathClass> classes;     // those on the path; the longest first, equal ones by name
  std::int64_t hops = 0;              // from one rank to another
};

// A part of the path that stays on one rank.
struct PathStretch {
  std::int32_t rank = 0;
  Time begin;
  Time end;
  std::int64_t ops = 0;
  std::int32_t most = 0;    // the class that takes most of it, the one that is longer on the whole path of equal ones
  Time most_time;           // of that class in this stretch
  std::size_t longest = 0;  // index of its longest segment, the first of equal ones

  Time time() const { return end - begin; }
};

// The longest first, then by time; at most `count`.
std::vector<PathStretch> longest_stretches(const CriticalPath& path, std::size_t count);

// An empty graph has an empty path.
CriticalPath critical_path(const Schedule& schedule, const OpGraph& graph);

// Ops of the ranks that are not folded away, or limit + 1 if there are more.
std::int64_t count_running_ops(const Schedule& schedule, std::int64_t limit);

// Runs the step (deterministic, so it is the same as any run before) with all records, and takes its path. None if the
// step has more than `limit` ops. Throws what simulate() throws.
std::optional<CriticalPath> trace_critical_path(const Schedule& schedule, const Cluster& cluster,
                                                const KernelModel& kernels, std::int64_t limit = kCriticalPathOps);

}  // namespace longhaul
