// A CUDA GPU as a Device: CUDA streams and events, cuBLASLt, cuDNN's attention where it was built in and one call does
// the pieces, else our own kernels over pieces; the rest from kernels/ and row_kernels.h.
//
// Every call makes its GPU the current one of the calling thread. One CudaDevice a GPU and process. Libraries' handles
// are one a stream: their workspaces are too. Attention plans are made when a piece list is first launched, which a
// warm-up step is for.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "validate/device/device.h"

namespace longhaul {

class CudaDevice : public Device {
 public:
  // Throws DeviceFault (kDeviceLost) where CUDA has no such GPU.
  explicit CudaDevice(int index, AttentionChoice attention = AttentionChoice::kBest);
  ~CudaDevice() override;

  int index() const { return index_; }
  // Tests: every call of a kernel (kernel_name) takes that much longer.
  void plant_delay(const std::string& kernel, std::chrono::nanoseconds delay);
  cudaStream_t cuda_stream(StreamHandle stream) const;

  HardwareInfo hardware() const override;
  std::int64_t free_bytes() const override;
  std::int64_t peak_bytes() const override;
  DeviceReadings readings() const override;
  std::int64_t workspace_bytes(const DeviceCall& call) const override;
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
  void hold_start(StreamHandle stream) override;
  void release_start() override;
  void begin_clock(StreamHandle stream) override;
  void end_clock(StreamHandle stream) override;
  std::int32_t clock_mhz() override;
  void abandon() override;

 private:
  struct State;
  void use() const;

  int index_;
  AttentionChoice attention_;
  std::string delayed_kernel_;
  std::chrono::nanoseconds delay_{0};
  std::unique_ptr<State> state_;
};

// GPUs that CUDA sees; 0, with the reason, where there is none.
int cuda_device_count(std::string& why);

}  // namespace longhaul
