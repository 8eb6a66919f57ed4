#include "validate/device/host_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "sim/core/mix.h"
#include "validate/device/host_kernels.h"

namespace longhaul {

std::byte* DeviceArena::at(const Address& address, StreamId stream) const {
  switch (address.part) {
    case MemoryPart::kArena:
      return arena + address.offset;
    case MemoryPart::kScratch:
      return scratch[static_cast<std::size_t>(stream)] + address.offset;
    case MemoryPart::kConstant:
      return constants + address.offset;
    case MemoryPart::kLoss:
      return losses + address.offset;
  }
  return nullptr;
}

PlacedRows placed(const Rows& rows, const DeviceArena& memory, StreamId stream) {
  PlacedRows result;
  result.data = memory.at(rows.base, stream);
  if (!rows.dense()) result.index = reinterpret_cast<const std::int32_t*>(memory.constants + rows.index);
  result.type = rows.type;
  result.rows = rows.rows;
  result.columns = rows.columns;
  result.stride = rows.stride;
  return result;
}

HostDevice::HostDevice(HostDeviceOptions options) : options_(std::move(options)) {}

HardwareInfo HostDevice::hardware() const {
  HardwareInfo info;
  info.device = "host";
  info.device_memory_bytes = options_.memory_bytes;
  return info;
}

std::byte* HostDevice::allocate(std::int64_t bytes) {
  if (bytes > free_bytes()) {
    throw DeviceFault(FaultKind::kMemory, {}, fmt::format("{} bytes are asked for, {} are free", bytes, free_bytes()));
  }
  constexpr std::size_t kAlignment = 256;
  std::size_t room = static_cast<std::size_t>(bytes) + kAlignment;
  blocks_.push_back(std::make_unique<std::byte[]>(room));
  allocated_ += bytes;
  void* start = blocks_.back().get();
  return static_cast<std::byte*>(std::align(kAlignment, static_cast<std::size_t>(bytes), start, room));
}

void HostDevice::write(std::byte* to, std::span<const std::byte> from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

void HostDevice::read(std::span<std::byte> to, const std::byte* from) {
  if (!to.empty()) std::memcpy(to.data(), from, to.size());
}

void HostDevice::fill_bytes(std::byte* to, std::int64_t bytes, std::uint8_t value) {
  std::fill_n(to, bytes, static_cast<std::byte>(value));
}

StreamHandle HostDevice::make_stream() {
  streams_.emplace_back();
  return static_cast<StreamHandle>(streams_.size()) - 1;
}

EventHandle HostDevice::make_event(bool) {
  events_.emplace_back();
  return static_cast<EventHandle>(events_.size()) - 1;
}

void HostDevice::enqueue(StreamHandle stream, Item item) {
  item.number = launched_++;
  streams_[static_cast<std::size_t>(stream)].push_back(std::move(item));
}

void HostDevice::record(EventHandle event, StreamHandle stream) {
  std::vector<bool>& reached = events_[static_cast<std::size_t>(event)].reached;
  reached.push_back(false);
  Item item;
  item.marks = event;
  item.mark = static_cast<std::int64_t>(reached.size());
  enqueue(stream, std::move(item));
}

void HostDevice::wait(StreamHandle stream, EventHandle event) {
  Item item;
  item.needs = event;
  item.needed_record = static_cast<std::int64_t>(events_[static_cast<std::size_t>(event)].reached.size());
  enqueue(stream, std::move(item));
}

void HostDevice::launch(const DeviceCall& call, const DeviceArena& memory, StreamId scratch_stream,
                        StreamHandle stream) {
  Item item;
  const std::string name = kernel_name(call);
  if (name == options_.failing_kernel) {
    item.work = [lost = options_.lost, name] {
      throw DeviceFault(lost ? FaultKind::kDeviceLost : FaultKind::kKernel, {-1, -1, "", name}, "a planted fault");
    };
  } else {
    item.endless = name == options_.hanging_kernel;
    item.work = [call, &memory, scratch_stream] { run_on_host(call, memory, scratch_stream); };
  }
  if (options_.clock) item.takes_ps = options_.clock(call);
  enqueue(stream, std::move(item));
}

void HostDevice::delay(std::chrono::nanoseconds length, StreamHandle stream) {
  Item item;
  if (options_.clock) {
    item.takes_ps = length.count() * 1000;
  } else {
    item.work = [length] { std::this_thread::sleep_for(length); };
  }
  enqueue(stream, std::move(item));
}

void HostDevice::copy(const PlacedRows& from, const PlacedRows& to, bool accumulate, StreamHandle stream) {
  Item item;
  item.work = [from, to, accumulate] { copy_on_host(from, to, accumulate); };
  enqueue(stream, std::move(item));
}

void HostDevice::sum(const std::vector<PlacedRows>& from, const std::vector<PlacedRows>& to, StreamHandle stream) {
  Item item;
  item.work = [from, to] { sum_on_host(from, to, false); };
  enqueue(stream, std::move(item));
}

void HostDevice::noise(const PlacedRows& to, std::uint32_t seed, StreamHandle stream) {
  Item item;
  item.work = [to, seed] { noise_on_host(to, seed); };
  enqueue(stream, std::move(item));
}

void HostDevice::read_async(std::span<std::byte> to, const std::byte* from, StreamHandle stream) {
  Item item;
  item.work = [to, from] {
    if (!to.empty()) std::memcpy(to.data(), from, to.size());
  };
  enqueue(stream, std::move(item));
}

void HostDevice::write_async(std::byte* to, std::vector<std::byte> from, StreamHandle stream) {
  Item item;
  item.work = [to, bytes = std::move(from)] {
    if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
  };
  enqueue(stream, std::move(item));
}

std::string HostDevice::kernel_label(const DeviceCall& call) const { return std::string("host ") + kernel_name(call); }

bool HostDevice::runnable(const std::deque<Item>& queue) const {
  if (queue.empty() || queue.front().endless) return false;
  const Item& item = queue.front();
  if (item.needs < 0 || item.needed_record == 0) return true;
  return events_[static_cast<std::size_t>(item.needs)].reached[static_cast<std::size_t>(item.needed_record - 1)];
}

// The stream whose next item runs; -1: none can.
int HostDevice::pick() {
  std::vector<int> ready;
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    if (runnable(streams_[s])) ready.push_back(static_cast<int>(s));
  }
  if (ready.empty()) return -1;
  switch (options_.order) {
    case HostOrder::kLowestFirst:
      return ready.front();
    case HostOrder::kHighestFirst:
      return ready.back();
    case HostOrder::kRandom:
      return ready[mix(options_.seed + ++draws_) % ready.size()];
    case HostOrder::kLaunch:
      break;
  }
  return *std::min_element(ready.begin(), ready.end(), [&](int a, int b) {
    return streams_[static_cast<std::size_t>(a)].front().number < streams_[static_cast<std::size_t>(b)].front().number;
  });
}

void HostDevice::synchronize(std::chrono::milliseconds timeout) {
  for (int stream = pick(); stream >= 0; stream = pick()) {
    std::deque<Item>& queue = streams_[static_cast<std::size_t>(stream)];
    const Item item = std::move(queue.front());
    queue.pop_front();
    if (item.work) item.work();
    clock_ps_ += item.takes_ps;
    if (item.marks < 0) continue;
    Event& event = events_[static_cast<std::size_t>(item.marks)];
    event.reached[static_cast<std::size_t>(item.mark - 1)] = true;
    event.time_ps = now_ps();
  }
  std::string stuck;
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    if (!streams_[s].empty()) stuck += fmt::format("{}stream {}", stuck.empty() ? "" : ", ", s);
  }
  if (stuck.empty()) return;
  throw DeviceFault(FaultKind::kHang, {}, fmt::format("not done after {} ms: {}", timeout.count(), stuck));
}

std::int64_t HostDevice::now_ps() const {
  if (options_.clock) return clock_ps_;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() * 1000;
}

bool HostDevice::reached(EventHandle event) {
  const std::vector<bool>& reached = events_[static_cast<std::size_t>(event)].reached;
  return reached.empty() || reached.back();
}

std::int64_t HostDevice::picoseconds_between(EventHandle from, EventHandle to) {
  return events_[static_cast<std::size_t>(to)].time_ps - events_[static_cast<std::size_t>(from)].time_ps;
}

}  // namespace longhaul
