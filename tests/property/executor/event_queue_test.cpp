// Stateful model test: both event queues against a sorted vector, with many equal times.
#include "sim/core/event_queue.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <rapidcheck/state.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace longhaul {
namespace {

struct Model {
  std::int64_t now = 0;
  std::uint64_t next_payload = 0;
  std::vector<std::pair<std::int64_t, std::uint64_t>> pending;  // sorted by time, then order of pushes
};

template <class Queue>
struct Push : rc::state::Command<Model, Queue> {
  // Small, middling or huge steps, so that ties and every bucket occur.
  std::int64_t delay = *rc::gen::oneOf(rc::gen::inRange<std::int64_t>(0, 3), rc::gen::inRange<std::int64_t>(0, 1000),
                                       rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 50));
  void apply(Model& model) const override {
    const std::pair<std::int64_t, std::uint64_t> entry{model.now + delay, model.next_payload++};
    model.pending.insert(std::upper_bound(model.pending.begin(), model.pending.end(), entry), entry);
  }
  void run(const Model& model, Queue& queue) const override {
    queue.push(Time::from_ps(model.now + delay), model.next_payload);
    RC_ASSERT(queue.size() == model.pending.size() + 1);
  }
};

template <class Queue>
struct Pop : rc::state::Command<Model, Queue> {
  void checkPreconditions(const Model& model) const override { RC_PRE(!model.pending.empty()); }
  void apply(Model& model) const override {
    model.now = model.pending.front().first;
    model.pending.erase(model.pending.begin());
  }
  void run(const Model& model, Queue& queue) const override {
    const Event event = queue.pop();
    RC_ASSERT(event.time.ps() == model.pending.front().first);
    RC_ASSERT(event.payload == model.pending.front().second);
    RC_ASSERT(queue.empty() == (model.pending.size() == 1));
  }
};

template <class Queue>
void check_against_model() {
  Queue queue;
  rc::state::check(Model{}, queue, rc::state::gen::execOneOfWithArgs<Push<Queue>, Push<Queue>, Pop<Queue>>());
}

RC_GTEST_PROP(EventQueue, RadixQueueIsASortedVector, ()) { check_against_model<RadixQueue>(); }
RC_GTEST_PROP(EventQueue, BinaryHeapQueueIsASortedVector, ()) { check_against_model<BinaryHeapQueue>(); }

}  // namespace
}  // namespace longhaul
