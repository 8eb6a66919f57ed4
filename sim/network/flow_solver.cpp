#include "sim/network/flow_solver.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "sim/core/invariant.h"
#include "sim/network/flow_share.h"

namespace longhaul {
namespace {

struct Flow {
  const Transfer* transfer = nullptr;
  std::uint32_t tag = 0;
  std::uint32_t generation = 0;     // of the slot; events of earlier flows in it are void
  std::uint64_t order = 0;          // of the start
  FlowShare::BundleId bundle = -1;  // -1: bytes do not move yet
  double left = 0;                  // bytes on the reference link, at `since`
  double rate = 0;
  double slowdown = 1;
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
  explicit State(const Cluster& cluster) : share_(cluster), delivered_(cluster.links().size()) {}

  FlowId start(Time now, const Transfer& transfer, std::uint32_t tag);
  void slow(Time now, std::span<const Slowdown> flows);
  void advance(Time to, std::vector<std::uint32_t>& finished);
  Time next() const { return events_.empty() ? Time::max() : events_.top().time; }

  const FlowShare& share() const { return share_; }
  const std::vector<std::int64_t>& delivered() const { return delivered_; }
  std::int64_t in_flight() const { return in_flight_; }

 private:
  Flow& at(std::int32_t flow) { return flows_[static_cast<std::size_t>(flow)]; }
  std::vector<std::int32_t>& flows_of(FlowShare::BundleId bundle);
  void push(std::int32_t flow, Time time) { events_.push({time, at(flow).order, flow, at(flow).generation}); }
  void settle();
  void apply_rates();
  void begin_bytes(std::int32_t flow);
  void end_bytes(std::int32_t flow);
  void end(std::int32_t flow, std::vector<std::uint32_t>& finished);
  void set_rate(std::int32_t flow, double rate);

  FlowShare share_;
  std::vector<std::int64_t> delivered_;
  std::vector<Flow> flows_;
  std::vector<std::int32_t> free_;
  std::vector<std::vector<std::int32_t>> flows_of_bundle_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::int32_t> starting_;  // scratch of advance()
  std::vector<std::int32_t> ending_;
  Time now_;
  std::uint64_t next_order_ = 0;
  std::int64_t in_flight_ = 0;
};

std::vector<std::int32_t>& FlowSolver::State::flows_of(FlowShare::BundleId bundle) {
  const auto index = static_cast<std::size_t>(bundle);
  if (index >= flows_of_bundle_.size()) flows_of_bundle_.resize(index + 1);
  return flows_of_bundle_[index];
}

FlowSolver::FlowId FlowSolver::State::start(Time now, const Transfer& transfer, std::uint32_t tag) {
  LH_ASSERT(now >= now_ && now <= next(), "a start at {} ps between {} and {} ps", now.ps(), now_.ps(), next().ps());
  now_ = now;
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
  LH_ASSERT(now >= now_ && now <= next(), "a change at {} ps between {} and {} ps", now.ps(), now_.ps(), next().ps());
  now_ = now;
  for (const Slowdown& change : flows) {
    Flow& flow = at(change.flow);
    LH_ASSERT(flow.transfer != nullptr && change.factor >= 1, "flow {} slowed by {}", change.flow, change.factor);
    if (flow.slowdown == change.factor) continue;
    flow.slowdown = change.factor;
    if (flow.bundle < 0 || flow.finish == now) continue;  // its bytes do not move yet, or have arrived
    std::erase(flows_of(flow.bundle), change.flow);
    share_.remove(flow.bundle);
    flow.bundle = share_.add(*flow.transfer, flow.slowdown);
    flows_of(flow.bundle).push_back(change.flow);
  }
  apply_rates();
  settle();
}

void FlowSolver::State::apply_rates() {
  for (const FlowShare::BundleRate& change : share_.solve()) {
    for (const std::int32_t flow : flows_of(change.bundle)) set_rate(flow, change.rate);
  }
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
  for (const std::int32_t flow : ending_) end_bytes(flow);
  apply_rates();
  for (const std::int32_t flow : ending_) end(flow, finished);
  settle();
}

void FlowSolver::State::begin_bytes(std::int32_t slot) {
  Flow& flow = at(slot);
  flow.bundle = share_.add(*flow.transfer, flow.slowdown);
  flow.left = share_.reference(flow.bundle);
  flow.since = now_;
  flows_of(flow.bundle).push_back(slot);
}

void FlowSolver::State::end_bytes(std::int32_t slot) {
  Flow& flow = at(slot);
  if (flow.bundle < 0) return;
  const double moved = flow.rate * (now_ - flow.since).seconds();
  // One picosecond at this rate for the rounding of the finish time, and the rounding of the doubles.
  const double slack = flow.rate * 1e-12 + 1e-9 * share_.reference(flow.bundle);
  LH_ASSERT(std::abs(flow.left - moved) <= slack, "a transfer ends with {} of {} bytes left", flow.left - moved,
            share_.reference(flow.bundle));
  for (const LinkLoad& load : flow.transfer->loads) delivered_[static_cast<std::size_t>(load.link)] += load.bytes;
  std::erase(flows_of(flow.bundle), slot);
  share_.remove(flow.bundle);
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
  flow.left = std::max(0.0, flow.left - flow.rate * (now_ - flow.since).seconds());
  flow.since = now_;
  flow.rate = rate;
  const bool undisturbed =
      flow.slowdown == 1 && rate == share_.limit(flow.bundle) && flow.left == share_.reference(flow.bundle);
  flow.finish =
      now_ + (undisturbed ? flow.transfer->alone - flow.transfer->latency : Time::from_seconds(flow.left / rate));
  if (flow.finish >= flow.armed) return;
  flow.armed = flow.finish;
  push(slot, flow.armed);
}

FlowSolver::FlowSolver(const Cluster& cluster) : state_(std::make_unique<State>(cluster)) {}
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
