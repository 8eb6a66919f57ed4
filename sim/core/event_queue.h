// Queues of (time, payload) events that leave in time order, equal times first in, first out.
//
// Two implementations behind one interface of four functions, so that one can prove the other:
//   * RadixQueue: a stable monotone radix heap. Bucket b holds the entries whose highest bit that differs from the last
//     popped time is b - 1; a bucket is redistributed when it becomes the lowest, and keeps the order of insertion, so
//     no sequence number is stored. O(64) bucket moves an entry at most, a few in practice.
//   * BinaryHeapQueue: std::priority_queue with a sequence number.
// Invariants: a push is never earlier than the last pop (asserted); pops never go back in time (asserted).
// Ignores: removing or moving entries; owners re-check a popped entry against their own state.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <queue>
#include <vector>

#include "sim/core/invariant.h"
#include "sim/core/sim_time.h"

namespace longhaul {

struct Event {
  Time time;
  std::uint64_t payload = 0;
};

class RadixQueue {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }

  void push(Time time, std::uint64_t payload) {
    LH_ASSERT(time >= last_, "event at {} ps pushed after {} ps was popped", time.ps(), last_.ps());
    const std::size_t bucket = bucket_of(time);
    buckets_[bucket].push_back({time, payload});
    occupied_ |= std::uint64_t{1} << bucket;
    ++size_;
  }

  // The earliest event; of equal ones the first pushed. The queue must not be empty.
  Event pop() {
    LH_ASSERT(size_ > 0, "pop of an empty event queue");
    std::vector<Event>& ready = buckets_[0];
    if (head_ == ready.size()) refill();
    const Event event = ready[head_++];
    if (head_ == ready.size()) {
      ready.clear();
      head_ = 0;
      occupied_ &= ~std::uint64_t{1};
    }
    --size_;
    return event;
  }

 private:
  // 0 for the last popped time, else 1 + the index of the highest bit that differs from it; times are not negative.
  std::size_t bucket_of(Time time) const {
    return static_cast<std::size_t>(
        std::bit_width(static_cast<std::uint64_t>(time.ps()) ^ static_cast<std::uint64_t>(last_.ps())));
  }

  void refill() {
    std::vector<Event>& from = buckets_[static_cast<std::size_t>(std::countr_zero(occupied_))];
    occupied_ &= occupied_ - 1;
    Time earliest = from.front().time;
    for (const Event& event : from) earliest = event.time < earliest ? event.time : earliest;
    LH_ASSERT(earliest >= last_, "time goes back from {} ps to {} ps", last_.ps(), earliest.ps());
    last_ = earliest;
    for (const Event& event : from) {
      const std::size_t bucket = bucket_of(event.time);
      buckets_[bucket].push_back(event);
      occupied_ |= std::uint64_t{1} << bucket;
    }
    from.clear();
  }

  std::array<std::vector<Event>, 64> buckets_;
  std::uint64_t occupied_ = 0;  // bit b: bucket b holds entries
  std::size_t head_ = 0;        // of bucket 0
  std::size_t size_ = 0;
  Time last_;
};

class BinaryHeapQueue {
 public:
  bool empty() const { return heap_.empty(); }
  std::size_t size() const { return heap_.size(); }

  void push(Time time, std::uint64_t payload) {
    LH_ASSERT(time >= last_, "event at {} ps pushed after {} ps was popped", time.ps(), last_.ps());
    heap_.push({{time, payload}, sequence_++});
  }

  Event pop() {
    LH_ASSERT(!heap_.empty(), "pop of an empty event queue");
    const Event event = heap_.top().event;
    heap_.pop();
    LH_ASSERT(event.time >= last_, "time goes back from {} ps to {} ps", last_.ps(), event.time.ps());
    last_ = event.time;
    return event;
  }

 private:
  struct Entry {
    Event event;
    std::uint64_t sequence = 0;
    bool operator<(const Entry& other) const {  // the priority queue pops the greatest
      if (event.time != other.event.time) return event.time > other.event.time;
      return sequence > other.sequence;
    }
  };
  std::priority_queue<Entry> heap_;
  std::uint64_t sequence_ = 0;
  Time last_;
};

}  // namespace longhaul
