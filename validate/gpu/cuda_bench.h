// The bench of `longhaul calibrate` on the GPUs of this host: kernels/ and CUDA behind validate/gpu/calibrate/bench.h.
//
// Calls run on device 0. GEMMs go through cuBLASLt, attention through cuDNN's composed graphs (one problem a call,
// dense or ragged), block diffusion through our own piece attention, memory-bound kernels and copies as they are. A
// call that a library refuses while its plan is built (and that leaves the device well) is an UnsupportedCall;
// everything else that CUDA reports is a BenchFault.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/cudnn/attention.h"
#include "kernels/gemm/gemm.h"
#include "validate/gpu/calibrate/bench.h"
#include "validate/gpu/calibrate/load_bench.h"
#include "validate/gpu/call_timer.h"
#include "validate/gpu/operand_pool.h"

namespace longhaul {

class CudaBench : public Bench {
 public:
  // Throws LimitError where there is no GPU, fewer than asked for, or GPUs of several kinds.
  explicit CudaBench(const BenchOptions& options);
  ~CudaBench() override;

  std::string device_name() const override;
  std::vector<std::string> identity() const override;
  std::vector<std::string> notes() const override;
  double default_clock_mhz() const override;
  PreparedCall prepare(const CalibrationCall& call) override;
  std::vector<CalibrationTable> tables(const std::vector<CallClass>& classes, bool quick) override;

 private:
  struct HostMemory;
  using Enqueue = std::function<void()>;

  Enqueue make(const CalibrationCall& call, std::string& implementation);
  Enqueue gemm(const CalibrationCall& call);
  Enqueue attention(const CalibrationCall& call, std::string& implementation);
  Enqueue diffusion(const CalibrationCall& call, std::string& implementation);
  Enqueue copy(const CalibrationCall& call);
  PreparedCall warmed_up(const CalibrationCall& call);

  BenchOptions options_;
  int gpus_;
  CallTimer timer_;
  OperandPool pool_;
  Gemm gemm_;
  CudnnAttention cudnn_;
  std::unique_ptr<HostMemory> host_;
};

}  // namespace longhaul
