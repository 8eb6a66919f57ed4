// A device on the CPU: the kernels' own references in double precision on bf16 and fp32 memory, rounded where kernels
// round. For tests of everything that does not need a GPU.
//
// Work is queued by stream and runs at `synchronize` (or where the host reads), one item at a time; among the streams
// whose next item may run, an order picks, as in validate/cpu: a missing wait then shows as stale or unwritten numbers.
// Times are of this machine's clock and mean nothing.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "validate/device/device.h"

namespace longhaul {

enum class HostOrder : std::uint8_t {
  kLaunch,        // as launched
  kLowestFirst,   // the streams made first run as far ahead as they may: compute before communication
  kHighestFirst,  // the other way round
  kRandom,        // by seed
};

struct HostDeviceOptions {
  HostOrder order = HostOrder::kLaunch;
  std::uint64_t seed = 1;
  std::int64_t memory_bytes = std::int64_t{4} << 30;
  // Tests: a call of this kernel fails (empty: none), or never ends.
  std::string failing_kernel, hanging_kernel;
  bool lost = false;  // the failing kernel takes the device with it
  // Tests of times: what a call takes, in picoseconds of the device's own clock, which nothing else but delays moves.
  // Empty: this machine's clock.
  std::function<std::int64_t(const DeviceCall&)> clock;
};

class HostDevice : public Device {
 public:
  explicit HostDevice(HostDeviceOptions options = {});

  HardwareInfo hardware() const override;
  std::int64_t free_bytes() const override { return options_.memory_bytes - allocated_; }
  std::int64_t peak_bytes() const override { return allocated_; }
  std::byte* allocate(std::int64_t bytes) override;
  void write(std::byte* to, std::span<const std::byte> from) override;
  void read(std::span<std::byte> to, const std::byte* from) override;
  void fill_bytes(std::byte* to, std::int64_t bytes, std::uint8_t value) override;
  StreamHandle make_stream() override;
  EventHandle make_event(bool timed) override;
  void record(EventHandle event, StreamHandle stream) override;
  void wait(StreamHandle stream, EventHandle event) override;
  void launch(const DeviceCall& call, const DeviceArena& memory, StreamId scratch_stream, StreamHandle stream) override;
  void copy(const PlacedRows& from, const PlacedRows& to, bool accumulate, StreamHandle stream) override;
  void sum(const std::vector<PlacedRows>& from, const std::vector<PlacedRows>& to, StreamHandle stream) override;
  void noise(const PlacedRows& to, std::uint32_t seed, StreamHandle stream) override;
  void delay(std::chrono::nanoseconds length, StreamHandle stream) override;
  void read_async(std::span<std::byte> to, const std::byte* from, StreamHandle stream) override;
  void write_async(std::byte* to, std::vector<std::byte> from, StreamHandle stream) override;
  std::string kernel_label(const DeviceCall& call) const override;
  void synchronize(std::chrono::milliseconds timeout) override;
  bool reached(EventHandle event) override;
  std::int64_t picoseconds_between(EventHandle from, EventHandle to) override;
  void hold_start(StreamHandle) override {}
  void release_start() override {}
  void abandon() override {}

 private:
  // An item runs once `needs` has been reached (one record of an event); it then runs `work` and marks `marks`.
  struct Item {
    std::function<void()> work;
    EventHandle needs = -1;
    std::int64_t needed_record = 0;  // from 1; 0: none was asked for
    EventHandle marks = -1;
    std::int64_t mark = 0;
    bool endless = false;
    std::int64_t takes_ps = 0;  // of the device's own clock
    std::int64_t number = 0;    // of launches
  };
  struct Event {
    std::vector<bool> reached;  // by record
    std::int64_t time_ps = 0;
  };
  void enqueue(StreamHandle stream, Item item);
  bool runnable(const std::deque<Item>& queue) const;
  int pick();
  std::int64_t now_ps() const;

  HostDeviceOptions options_;
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::int64_t allocated_ = 0;
  std::vector<std::deque<Item>> streams_;
  std::vector<Event> events_;
  std::int64_t launched_ = 0;
  std::uint64_t draws_ = 0;
  std::int64_t clock_ps_ = 0;
};

}  // namespace longhaul
