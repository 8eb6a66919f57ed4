// Properties of NCCL's time model on random machines and calls, with the shipped constants.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "sim/network/nccl/times.h"

namespace longhaul {
namespace {

const NcclConstants& constants() {
  static const NcclConstants read = *read_nccl_constants(std::string(LONGHAUL_SOURCE_ROOT) + "/topologies/nccl.json");
  return read;
}

NcclMachine any_machine() {
  NcclMachine machine;
  machine.gpu = static_cast<NcclGpu>(*rc::gen::inRange(0, static_cast<int>(kNcclGpuCount)));
  machine.nvswitch = *rc::gen::arbitrary<bool>();
  machine.nvlink_rate = *rc::gen::inRange(50, 1000);
  machine.nvlink_links = *rc::gen::element(4, 8, 12, 18);
  machine.gpus_per_domain = *rc::gen::element(4, 8, 72);
  machine.nic_rate = *rc::gen::element(3.125, 6.25, 12.5, 25.0, 50.0, 100.0);
  machine.nics_per_domain = *rc::gen::element(1, 4, 8, 32, 72);
  machine.network = static_cast<NcclNetwork>(*rc::gen::inRange(0, static_cast<int>(kNcclNetworkCount)));
  machine.cpu = *rc::gen::element(HostCpu::kIntel, HostCpu::kAmd, HostCpu::kGrace);
  machine.sharp = *rc::gen::arbitrary<bool>();
  machine.nvls = *rc::gen::arbitrary<bool>();
  machine.version = *rc::gen::element(21806, 22703, 22809, 22902);
  return machine;
}

NcclCall any_call(const NcclMachine& machine) {
  NcclCall call;
  call.collective = static_cast<NcclCollective>(*rc::gen::inRange(0, 6));
  call.domains = *rc::gen::element(1, 1, 2, 3, 16);
  call.per_domain = *rc::gen::inRange(1, machine.gpus_per_domain + 1);
  call.ranks = call.domains * call.per_domain;
  call.bytes = *rc::gen::inRange(0, 1 << 20) * *rc::gen::element(1.0, 37.0, 4096.0);
  return call;
}

RC_GTEST_PROP(NcclTime, IsFiniteAndNeverNegative, ()) {
  const NcclMachine machine = any_machine();
  const NcclTime time = nccl_time(constants(), machine, any_call(machine));
  RC_ASSERT(std::isfinite(time.fixed_us) && std::isfinite(time.bytes_us));
  RC_ASSERT(time.fixed_us > 0);
  RC_ASSERT(time.bytes_us >= 0);
  RC_ASSERT(time.channels >= 1 && time.channels <= 64);
}

// No link carries more than its rate: the bytes that must leave a rank over NVLink, at NCCL's rate of it. (NVLS reduces
// in the switch, so a rank sends S once and not 2 (n - 1) / n of it.)
RC_GTEST_PROP(NcclTime, OneDomainKeepsToTheLinks, ()) {
  NcclMachine machine = any_machine();
  NcclCall call = any_call(machine);
  call.domains = 1;
  call.ranks = call.per_domain;
  RC_PRE(call.ranks > 1);
  const NcclTime time = nccl_time(constants(), machine, call);
  const double n = call.ranks;
  const bool reduces = call.collective == NcclCollective::kAllReduce;
  const bool whole =
      reduces || call.collective == NcclCollective::kBroadcast || call.collective == NcclCollective::kSendRecv;
  const double least = whole ? call.bytes : call.bytes * (n - 1) / n;
  RC_ASSERT(time.total_us() >= least / (1000 * machine.nvlink_rate) * (1 - 1e-9));
}

// The same call on links and NICs twice as fast never takes longer under the same choice.
RC_GTEST_PROP(NcclTime, FasterLinksNeverSlowAPlan, ()) {
  NcclMachine machine = any_machine();
  const NcclCall call = any_call(machine);
  NcclPlan plan = nccl_plan(machine, call);
  RC_PRE(!plan.tuned);
  const double before = nccl_time(constants(), machine, plan).total_us();
  machine.nvlink_rate *= 2;
  machine.nic_rate *= 2;
  plan.graph.nvlink_rate *= 2;
  RC_ASSERT(nccl_time(constants(), machine, plan).total_us() <= before * (1 + 1e-9));
}

// One algorithm and protocol with more bytes: never a shorter transfer.
RC_GTEST_PROP(NcclTime, MoreBytesNeverTransferFaster, ()) {
  const NcclMachine machine = any_machine();
  NcclCall call = any_call(machine);
  const NcclTime few = nccl_time(constants(), machine, call);
  call.bytes = call.bytes * 1.5 + 1;
  const NcclTime more = nccl_time(constants(), machine, call);
  RC_PRE(few.algorithm == more.algorithm && few.protocol == more.protocol && few.channels == more.channels);
  RC_ASSERT(more.bytes_us >= few.bytes_us * (1 - 1e-9));
}

}  // namespace
}  // namespace longhaul
