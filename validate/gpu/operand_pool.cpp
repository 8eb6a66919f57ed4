#include "validate/gpu/operand_pool.h"

#include <fmt/format.h>

#include "validate/gpu/calibrate/bench.h"
#include "validate/gpu/call_timer.h"

namespace longhaul {
namespace {

constexpr std::size_t kAlignment = 256;

}  // namespace

void* OperandPool::take_bytes(std::size_t bytes) {
  if (bytes > memory_.size() - used_) {
    throw UnsupportedCall(fmt::format("needs {} bytes more of device memory than the {} that could be had",
                                      bytes - (memory_.size() - used_), memory_.size()));
  }
  std::byte* const begin = memory_.data() + used_;
  fill_with_noise(reinterpret_cast<Bf16*>(begin), bytes / sizeof(Bf16), ++seed_, stream_);
  const std::size_t taken = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  used_ = taken > memory_.size() - used_ ? memory_.size() : used_ + taken;
  return begin;
}

}  // namespace longhaul
