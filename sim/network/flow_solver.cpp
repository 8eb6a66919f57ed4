#include "sim/network/flow_solver.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>

#include "sim/core/invariant.h"
#include "sim/network/flow_share.h"

namespace longhaul {
namespace {

// The part of its remaining time by which the finish event of a hurried flow is early.
constexpr std::int64_t kEarly = 8;

// Flows are far apart in memory: how many changes of rates ahead the next one is asked for.
constexpr std::size_t kAhead = 4;

struct Flow {
  const Transfer* transfer = nullptr;
  std::uint32_t tag = 0;
  std::uint32_t generation = 0;     // of the slot; events of earlier flows in it are void
  std::uint64_t order = 0;          // of the start
  FlowShare::BundleId bundle = -1;  // -1: bytes do not move yet
  std::int32_t next = -1;           // of the same bundle
  double left = 0;                  // bytes on the reference link, at `since`
  double rate = 0;
  double slowdown = 1;
  Time begun;  // of the bytes
  Time since;
  Time finish;  // at the present rate
  Time armed;   // of the queued finish event, never after `finish`
};

struct Event {
  Time time;
  std::uint64_t order = 0;
  std::int32_t flow = 0;
  std::uint32_t generation = 0;
  bool operator>(const Event& other) const { return time != other.time ? time > other.time : order > other.order; }
};

}  // namespace

class FlowSolver::State {
 public:
  State(const Cluster& cluster, double eps)
      : cluster_(&cluster),
        share_(cluster, eps),
        delivered_(cluster.links().size()),
        first_byte_(cluster.links().size(), Time::max()) {}

  FlowId start(Time now, const Transfer& transfer, std::uint32_t tag);
  void slow(Time now, std::span<const Slowdown> flows);
  void advance(Time to, std::vector<std::uint32_t>& finished);
  Time next();

  const FlowShare& share() {
    solve();
    return share_;
  }
  const std::vector<std::int64_t>& delivered() const;
  std::int64_t in_flight() const { return in_flight_; }

 private:
  Flow& at(std::int32_t flow) { return flows_[static_cast<std::size_t>(flow)]; }
  void join(std::int32_t flow);
  void leave(std::int32_t flow);
  void push(std::int32_t flow, Time time) { events_.push({time, at(flow).order, flow, at(flow).generation}); }
  void move_to(Time now);
  void settle();
  void solve();
  void begin_bytes(std::int32_t flow);
  void end_bytes(std::int32_t flow);
  void deliver(const Flow& flow);
  void end(std::int32_t flow, std::vector<std::uint32_t>& finished);
  void set_rate(std::int32_t flow, double rate);

  const Cluster* cluster_;
  FlowShare share_;
  bool changed_ = false;  // share_ has changes that are not solved
  std::vector<std::int64_t> delivered_;
  std::vector<Time> first_byte_;  // by link: when the first of the ended flows on it began to move bytes
  std::vector<Flow> flows_;
  std::vector<std::int32_t> free_;
  std::vector<std::int32_t> first_of_bundle_;  // -1: none
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::int32_t> starting_;  // scratch of advance()
  std::vector<std::int32_t> ending_;
  Time now_;
  std::uint64_t next_order_ = 0;
  std::int64_t in_flight_ = 0;
  std::int64_t ended_ = 0;
};

// Adds the flow to its bundle.
void FlowSolver::State::join(std::int32_t slot) {
  Flow& flow = at(slot);
  flow.bundle = share_.add(*flow.transfer, flow.slowdown);
  const auto bundle = static_cast<std::size_t>(flow.bundle);
  if (bundle >= first_of_bundle_.size()) first_of_bundle_.resize(bundle + 1, -1);
  flow.next = std::exchange(first_of_bundle_[bundle], slot);
  changed_ = true;
}

void FlowSolver::State::leave(std::int32_t slot) {
  std::int32_t* from = &first_of_bundle_[static_cast<std::size_t>(at(slot).bundle)];
  while (*from != slot) from = &at(*from).next;
  *from = at(slot).next;
  share_.remove(at(slot).bundle);
  changed_ = true;
}

// Changes are solved when time moves on: an end and the start that follows it at once are one change of rates.
Time FlowSolver::State::next() {
  if (events_.empty() || events_.top().time > now_) solve();
  return events_.empty() ? Time::max() : events_.top().time;
}

void FlowSolver::State::move_to(Time now) {
  LH_ASSERT(now == now_ || (now > now_ && now <= next()), "a change at {} ps between {} and {} ps", now.ps(), now_.ps(),
            next().ps());
  now_ = now;
}

FlowSolver::FlowId FlowSolver::State::start(Time now, const Transfer& transfer, std::uint32_t tag) {
  move_to(now);
  std::int32_t slot = static_cast<std::int32_t>(flows_.size());
  if (free_.empty()) {
    flows_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  Flow& flow = at(slot);
  flow.transfer = &transfer;
  flow.tag = tag;
  ++flow.generation;
  flow.order = next_order_++;
  flow.bundle = -1;
  flow.rate = 0;
  flow.slowdown = 1;
  flow.finish = flow.armed = now + transfer.latency;
  ++in_flight_;
  push(slot, flow.armed);
  return slot;
}

void FlowSolver::State::slow(Time now, std::span<const Slowdown> flows) {
  move_to(now);
  solve();
  for (const Slowdown& change : flows) {
    Flow& flow = at(change.flow);
    LH_ASSERT(flow.transfer != nullptr && change.factor >= 1, "flow {} slowed by {}", change.flow, change.factor);
    if (flow.slowdown == change.factor) continue;
    flow.slowdown = change.factor;
    if (flow.bundle < 0 || flow.finish == now) continue;  // its bytes do not move yet, or have arrived
    leave(change.flow);
    join(change.flow);
  }
}

void FlowSolver::State::solve() {
  if (!changed_) return;
  changed_ = false;
  const std::vector<FlowShare::BundleRate>& changes = share_.solve();
  const auto first = [&](std::size_t change) {
    return first_of_bundle_[static_cast<std::size_t>(changes[change].bundle)];
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    if (i + kAhead < changes.size()) __builtin_prefetch(&flows_[static_cast<std::size_t>(first(i + kAhead))]);
    for (std::int32_t flow = first(i); flow >= 0; flow = at(flow).next) set_rate(flow, changes[i].rate);
  }
  settle();
}

// Makes the top event a true one: drops void events and moves the early ones to where they belong.
void FlowSolver::State::settle() {
  while (!events_.empty()) {
    const Event event = events_.top();
    Flow& flow = at(event.flow);
    const bool holds = flow.generation == event.generation && flow.armed == event.time;
    if (holds && flow.finish == event.time) return;
    events_.pop();
    if (!holds) continue;
    flow.armed = flow.finish;
    push(event.flow, flow.armed);
  }
}

void FlowSolver::State::advance(Time to, std::vector<std::uint32_t>& finished) {
  LH_ASSERT(to == next() && to >= now_ && to != Time::max(), "an advance from {} to {} ps, but next is {} ps",
            now_.ps(), to.ps(), next().ps());
  now_ = to;
  starting_.clear();
  ending_.clear();
  while (!events_.empty() && events_.top().time == to) {
    const std::int32_t flow = events_.top().flow;
    events_.pop();
    const bool starts = at(flow).bundle < 0 && !at(flow).transfer->loads.empty();
    (starts ? starting_ : ending_).push_back(flow);
    at(flow).armed = Time::max();  // nothing queued
    settle();
  }
  // Starts first: a transfer that takes over from an equal one joins its bundle.
  for (const std::int32_t flow : starting_) begin_bytes(flow);
  for (const std::int32_t flow : ending_) {
    end_bytes(flow);
    end(flow, finished);
  }
  settle();
}

void FlowSolver::State::begin_bytes(std::int32_t slot) {
  Flow& flow = at(slot);
  join(slot);
  flow.left = share_.reference(flow.bundle);
  flow.since = flow.begun = now_;
}

void FlowSolver::State::end_bytes(std::int32_t slot) {
  Flow& flow = at(slot);
  if (flow.bundle < 0) return;
  const double moved = flow.rate * (now_ - flow.since).seconds();
  // One picosecond at this rate for the rounding of the finish time, and the rounding of the doubles.
  const double slack = flow.rate * 1e-12 + 1e-9 * share_.reference(flow.bundle);
  LH_ASSERT(std::abs(flow.left - moved) <= slack, "a transfer ends with {} of {} bytes left", flow.left - moved,
            share_.reference(flow.bundle));
  deliver(flow);
  leave(slot);
}

void FlowSolver::State::deliver(const Flow& flow) {
  ++ended_;
  for (const LinkLoad& load : flow.transfer->loads) {
    const auto link = static_cast<std::size_t>(load.link);
    delivered_[link] += load.bytes;
    first_byte_[link] = std::min(first_byte_[link], flow.begun);
  }
}

// No link has carried more than its bandwidth allows since its first byte, but for the slack of end_bytes().
const std::vector<std::int64_t>& FlowSolver::State::delivered() const {
  for (std::size_t link = 0; link < delivered_.size(); ++link) {
    if (delivered_[link] == 0) continue;
    const double seconds = (now_ - first_byte_[link]).seconds() * (1 + 1e-9) + 1e-12 * static_cast<double>(ended_);
    LH_ASSERT(static_cast<double>(delivered_[link]) <= cluster_->links()[link].bandwidth.value * seconds,
              "link {} has carried {} bytes in {} s", cluster_->links()[link].name, delivered_[link], seconds);
  }
  return delivered_;
}

void FlowSolver::State::end(std::int32_t slot, std::vector<std::uint32_t>& finished) {
  Flow& flow = at(slot);
  finished.push_back(flow.tag);
  flow.transfer = nullptr;
  ++flow.generation;
  free_.push_back(slot);
  --in_flight_;
}

void FlowSolver::State::set_rate(std::int32_t slot, double rate) {
  Flow& flow = at(slot);
  if (rate == flow.rate) return;
  if (flow.rate > 0 && flow.finish == now_) return;  // all bytes have arrived: it ends at this instant
  const Time moving = now_ - flow.since;
  flow.left = std::max(0.0, flow.left - flow.rate * moving.seconds());
  flow.since = now_;
  const bool first = flow.rate == 0;
  flow.rate = rate;
  const bool undisturbed = moving == Time::zero() && flow.slowdown == 1 && rate == share_.limit(flow.bundle) &&
                           flow.left == share_.reference(flow.bundle);
  flow.finish =
      now_ + (undisturbed ? flow.transfer->alone - flow.transfer->latency : Time::from_seconds(flow.left / rate));
  if (flow.finish >= flow.armed) return;
  // A flow that is hurried once will be again: its event comes early, so that the next changes need none.
  flow.armed = first ? flow.finish : flow.finish - Time::from_ps((flow.finish - now_).ps() / kEarly);
  push(slot, flow.armed);
}

FlowSolver::FlowSolver(const Cluster& cluster, double eps) : state_(std::make_unique<State>(cluster, eps)) {}
FlowSolver::~FlowSolver() = default;
FlowSolver::FlowSolver(FlowSolver&&) noexcept = default;
FlowSolver& FlowSolver::operator=(FlowSolver&&) noexcept = default;

FlowSolver::FlowId FlowSolver::start(Time now, const Transfer& transfer, std::uint32_t tag) {
  return state_->start(now, transfer, tag);
}
void FlowSolver::slow(Time now, std::span<const Slowdown> flows) { state_->slow(now, flows); }
Time FlowSolver::next() const { return state_->next(); }
void FlowSolver::advance(Time to, std::vector<std::uint32_t>& finished) { state_->advance(to, finished); }
std::int64_t FlowSolver::in_flight() const { return state_->in_flight(); }
const std::vector<std::int64_t>& FlowSolver::delivered() const { return state_->delivered(); }
const std::vector<double>& FlowSolver::peak_utilisation() const { return state_->share().peak_utilisation(); }
std::int64_t FlowSolver::solved_entries() const { return state_->share().solved_entries(); }

}  // namespace longhaul
