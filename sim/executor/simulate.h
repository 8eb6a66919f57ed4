// The simulated-time executor: schedule -> timeline.
//
// Model. Every rank has a host that issues its ops in program order, each for one launch time, at most
// `launch_queue_ops` ahead of what has finished (counted in whole segment passes), and streams that run their ops in
// order. An op starts when it is issued, its stream is free and the events that it waits for are recorded. A collective
// that is called while a kernel has its rank's multiprocessors begins with that kernel's last wave; one that waited for
// an event of the kernel's stream at which the kernel started, too, unless the call begins with a short kernel. Before
// an op with a stall the host waits until that is so, and goes on when the stall is over. Empty ops take no time and
// are not launched. A collective starts when all members have arrived and ends for all together; of an exchange what
// could pass between members that were there before has passed by then (CollectiveNetwork::start_exchange).
// A kernel is remaining work with a rate: beside a transfer (from its start, not while members wait) or a host copy of
// the same rank it runs slower by the model's factor, the larger one if both are there. Transfers do not slow down
// beside kernels, and kernels of two streams of one rank do not slow each other (both are approximations).
//
// Memory. An op's acquires count from its start (a collective's: from its arrival, when its kernel is launched), its
// releases at its end. Sizes are those of the schedule; the allocator's fragmentation is ignored.
//
// Idle time of the compute stream. Each instant goes to what the chain of waits ends in: the next compute op waits for
// the first event of its list that is not recorded, so for the op at the head of that stream, and so on. A transfer in
// flight, or a copy or kernel on another stream: exposed communication. A collective that waits for members: imbalance,
// or bubble if it is a pipeline edge in which this rank receives. An op that the host has not issued: launch. Once the
// compute stream has ended, the lowest unfinished stream takes its place; after the rank's last op: tail.
//
// Folding. A rank whose `representative` is another rank does not run; its totals are those of the representative.
// A collective starts when its members' representatives have arrived (they must be members of the same group), and its
// transfer covers all members. Transfers of groups without a running member are not simulated: fold only what shares no
// link.
//
// Asserted always: time never goes back; a stream never does two things; members of a collective agree; a tensor is
// acquired and written before it is read, acquired and released once; memory ends where it began; the parts of every
// rank sum to the step time.
//
// A LimitError lists who waits for what if ranks wait for each other at the end.
#pragma once

#include <cstdint>

#include "sim/executor/models.h"
#include "sim/timeline/timeline.h"

namespace longhaul {

struct SimulationOptions {
  bool unfolded = false;  // run every rank, whatever its representative
  std::int32_t launch_queue_ops = 1024;
  std::int32_t launch_queue_passes = 32;  // the same bound in segment passes
  TimelineSink* sink = nullptr;           // none: totals only
  TraceSelection trace;
  double kernel_scale = 1;      // what if all kernels took this times as long
  double collective_scale = 1;  // the same for all transfers
};

// With durations and network as given; the scales of `options` are not applied.
Totals simulate(const Schedule& schedule, const OpDurations& durations, CollectiveNetwork& network,
                const SimulationOptions& options = {});
// With the calibrated models; applies the scales of `options`.
Totals simulate(const Schedule& schedule, const Cluster& cluster, const KernelModel& kernels,
                const SimulationOptions& options = {});

}  // namespace longhaul
