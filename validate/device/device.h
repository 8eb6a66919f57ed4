// One device as the executor sees it: memory, streams, events, kernel calls, copies between ranks' memories.
//
// Streams and events mean what they mean in CUDA: work of one stream runs in order; `wait` refers to the latest
// `record` of the event before it on the host; an event that was never recorded holds nobody. Everything between
// `launch` and `synchronize` may run at any time that this order leaves open. Implementations: HostDevice (CPU,
// everywhere), CudaDevice (where CUDA was found). A DeviceFault says what failed; after it only `abandon` and
// destruction are allowed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "validate/device/device_fault.h"
#include "validate/device/kernel_call.h"
#include "validate/device/run_record.h"

namespace longhaul {

// Where the parts of one rank's memory begin on its device.
struct DeviceArena {
  std::byte* arena = nullptr;
  std::byte* constants = nullptr;
  std::byte* losses = nullptr;
  std::vector<std::byte*> scratch;  // by stream of the schedule

  std::byte* at(const Address& address, StreamId stream) const;
};

// Rows (kernel_call.h) with their addresses resolved.
struct PlacedRows {
  std::byte* data = nullptr;
  const std::int32_t* index = nullptr;  // nullptr: row i is row i
  ElementType type = ElementType::kBf16;
  std::int64_t rows = 0, columns = 0, stride = 0;
};
PlacedRows placed(const Rows& rows, const DeviceArena& memory, StreamId stream);

using StreamHandle = std::int32_t;
using EventHandle = std::int32_t;

// What the device's driver tells at one moment; 0: not known.
struct DeviceReadings {
  std::int32_t sm_clock_mhz = 0, temperature_c = 0, power_w = 0;
};

enum class AttentionChoice : std::uint8_t {
  kBest,    // cuDNN where one call does it, else our kernels
  kPieces,  // our kernels alone
};

class Device {
 public:
  virtual ~Device() = default;

  // What is known of the device; identity and clocks of a run are the executor's business.
  virtual HardwareInfo hardware() const = 0;
  virtual std::int64_t free_bytes() const = 0;
  // Most bytes in use at any time since the device was made, less what was in use then; 0 if it cannot tell.
  virtual std::int64_t peak_bytes() const = 0;
  virtual DeviceReadings readings() const { return {}; }
  // Most bytes that libraries hold on a stream that runs such a call, beside the call's own scratch. A GEMM's are
  // shared by all GEMMs of the stream, those of an attention call by all attention calls.
  virtual std::int64_t workspace_bytes(const DeviceCall&) const { return 0; }

  // Memory that lives as long as the device. Aligned to 256 bytes. DeviceFault (kMemory) if there is none.
  virtual std::byte* allocate(std::int64_t bytes) = 0;
  // Synchronous; no work may be running.
  virtual void write(std::byte* to, std::span<const std::byte> from) = 0;
  virtual void read(std::span<std::byte> to, const std::byte* from) = 0;
  virtual void fill_bytes(std::byte* to, std::int64_t bytes, std::uint8_t value) = 0;

  virtual StreamHandle make_stream() = 0;
  virtual EventHandle make_event(bool timed) = 0;
  virtual void record(EventHandle event, StreamHandle stream) = 0;
  virtual void wait(StreamHandle stream, EventHandle event) = 0;

  // Enqueue. `scratch_stream`: the stream of the schedule whose scratch the call may use.
  virtual void launch(const DeviceCall& call, const DeviceArena& memory, StreamId scratch_stream,
                      StreamHandle stream) = 0;
  virtual void copy(const PlacedRows& from, const PlacedRows& to, bool accumulate, StreamHandle stream) = 0;
  // Every one of `to` becomes the sum of all of `from`, in fp32 rounded once; one of `to` may be one of `from`.
  virtual void sum(const std::vector<PlacedRows>& from, const std::vector<PlacedRows>& to, StreamHandle stream) = 0;
  // Numbers of (-1/64, 1/64) that depend on `seed` and the place alone: finite stand-ins for what others would send.
  virtual void noise(const PlacedRows& to, std::uint32_t seed, StreamHandle stream) = 0;
  // The stream does nothing for so long.
  virtual void delay(std::chrono::nanoseconds length, StreamHandle stream) = 0;
  // `to` must live until the device is synchronized.
  virtual void read_async(std::span<std::byte> to, const std::byte* from, StreamHandle stream) = 0;
  virtual void write_async(std::byte* to, std::vector<std::byte> from, StreamHandle stream) = 0;

  // What runs such a call: "cublaslt", "cudnn", "piece_attention hopper", "rms_norm", ...
  virtual std::string kernel_label(const DeviceCall& call) const = 0;

  // Returns when all work is done. DeviceFault (kHang) naming the streams that are not, once `timeout` is over.
  virtual void synchronize(std::chrono::milliseconds timeout) = 0;
  // Whether the latest record of the event has been reached; true if it was never recorded. Does not wait.
  virtual bool reached(EventHandle event) = 0;
  // From one timed event to a later one, both reached.
  virtual std::int64_t picoseconds_between(EventHandle from, EventHandle to) = 0;
  // Work enqueued from here on waits until the host has enqueued a good part of a step (or calls `release_start`), so
  // that a device is not timed while it waits for the host.
  virtual void hold_start(StreamHandle stream) = 0;
  virtual void release_start() = 0;
  // Where, on a stream, a span begins and ends whose clock is asked for: the multiprocessors' mean over the last span,
  // in MHz, when all work is done. 0: not known.
  virtual void begin_clock(StreamHandle) {}
  virtual void end_clock(StreamHandle) {}
  virtual std::int32_t clock_mhz() { return 0; }

  // After a hang: nothing more is freed or waited for.
  virtual void abandon() = 0;
};

}  // namespace longhaul
