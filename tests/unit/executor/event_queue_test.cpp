// The same body over both event queues: order, ties, time that never goes back.
#include "sim/core/event_queue.h"

#include <gtest/gtest.h>

#include <vector>

namespace longhaul {
namespace {

template <class Queue>
class EventQueueTest : public testing::Test {};
using Queues = testing::Types<RadixQueue, BinaryHeapQueue>;
TYPED_TEST_SUITE(EventQueueTest, Queues);
template <class Queue>
using EventQueueDeathTest = EventQueueTest<Queue>;
TYPED_TEST_SUITE(EventQueueDeathTest, Queues);

TYPED_TEST(EventQueueTest, PopsInTimeOrder) {
  TypeParam queue;
  for (const std::int64_t ps : std::vector<std::int64_t>{70, 3, 1'000'000'000'000, 5, 4})
    queue.push(Time::from_ps(ps), static_cast<std::uint64_t>(ps));
  for (const std::int64_t ps : std::vector<std::int64_t>{3, 4, 5, 70, 1'000'000'000'000}) {
    const Event event = queue.pop();
    EXPECT_EQ(event.time.ps(), ps);
    EXPECT_EQ(event.payload, static_cast<std::uint64_t>(ps));
  }
  EXPECT_TRUE(queue.empty());
}

TYPED_TEST(EventQueueTest, EqualTimesLeaveInTheOrderOfTheirPushes) {
  TypeParam queue;
  // Pushed before and after the time is the current one, so that they pass through different buckets.
  queue.push(Time::from_ps(8), 1);
  queue.push(Time::from_ps(9), 2);
  queue.push(Time::from_ps(9), 3);
  EXPECT_EQ(queue.pop().payload, 1U);
  queue.push(Time::from_ps(9), 4);
  EXPECT_EQ(queue.pop().payload, 2U);
  queue.push(Time::from_ps(9), 5);
  for (const std::uint64_t payload : {3U, 4U, 5U}) EXPECT_EQ(queue.pop().payload, payload);
}

TYPED_TEST(EventQueueTest, AcceptsTheCurrentTimeAndTheLargest) {
  TypeParam queue;
  queue.push(Time::from_ps(5), 1);
  EXPECT_EQ(queue.pop().payload, 1U);
  queue.push(Time::max(), 2);
  queue.push(Time::from_ps(5), 3);
  EXPECT_EQ(queue.size(), 2U);
  EXPECT_EQ(queue.pop().payload, 3U);
  EXPECT_EQ(queue.pop().time, Time::max());
}

TYPED_TEST(EventQueueDeathTest, TimeNeverGoesBack) {
  TypeParam queue;
  queue.push(Time::from_ps(5), 1);
  queue.pop();
  EXPECT_DEATH(queue.push(Time::from_ps(4), 2), "event at 4 ps pushed after 5 ps was popped");
}

TYPED_TEST(EventQueueDeathTest, PopNeedsAnEvent) {
  TypeParam queue;
  EXPECT_DEATH(queue.pop(), "empty");
}

}  // namespace
}  // namespace longhaul
