// What an eager framework takes for copies that it does with kernels and host work of its own.
//
// Models one op of a kind: seconds = wait + bytes read and written x seconds a byte, and the host's time to issue it in
// place of a plain launch. Wait: the host waits for the stream before it goes on, so the device idles for the host's
// work until the kernel comes. A stall is such a wait without a kernel, with a part that grows with the call's pieces.
// On another device a byte takes longer by the ratio of the data sheets' bandwidths, or, of a kind that its own
// multiprocessors hold up (its rate is the same where its data lie in the L2), by the ratio of multiprocessors x clock;
// never less than any element-wise kernel takes there. Host times stay. An estimate's interval is the spread of the
// kind's own rows, widened as any other's beyond the measured device.
//
// File: topologies/devices/eager/pytorch.json, schema topologies/eager-kernels.schema.json; kinds are named as
// to_string(EagerKernel) and to_string(HostStall) do (sim/schedule/op.h). Units: seconds, bytes. Ignored: sizes below
// which a kernel's own latency counts, other hosts.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "sim/core/error.h"

namespace longhaul {

struct EagerKernelTimes {
  double seconds_per_byte = 0;  // of all that is read and written, on the measured device
  double host_seconds = 0;      // to issue it; joined slices: each of them
  double wait_seconds = 0;
  bool memory_bound = true;  // false: multiprocessors hold it up
  double low = 0;            // <= 0: measured / these constants - 1 of the kind's rows, least
  double high = 0;           // >= 0: and most
};

struct HostStallTimes {
  double seconds = 0;
  double seconds_per_piece = 0;
};

struct EagerKernels {
  std::string date;
  double measured_memory_bytes_per_second = 0;
  double measured_multiprocessor_clocks = 0;  // a second, of all multiprocessors together
  std::map<std::string, EagerKernelTimes, std::less<>> kernels;
  std::map<std::string, HostStallTimes, std::less<>> stalls;

  // Nothing for a kind that the file has not.
  const EagerKernelTimes* kernel(std::string_view name) const;
  const HostStallTimes* stall(std::string_view name) const;
};

// Every fault of the file.
Expected<std::shared_ptr<const EagerKernels>> read_eager_kernels(const std::string& data_directory);
Expected<std::shared_ptr<const EagerKernels>> parse_eager_kernels(const std::string& text, const std::string& file);

}  // namespace longhaul
