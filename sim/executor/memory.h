// Device memory of one rank while a simulation runs: which tensors it holds, and how many bytes of each category.
//
// Tensors are the keys of TensorId::key() (kind below 2^12, so bits 60.. are free for flags) in an open-addressing
// table with linear probing and backward-shift deletion: 8 bytes a slot, no tombstones. Invariants, asserted: acquired
// once, released once while held, read only when written, level back at the start. Ignores: fragmentation and the
// allocator's rounding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/core/sim_time.h"
#include "sim/timeline/timeline.h"

namespace longhaul {

class TensorTable {
 public:
  // False if the key is there already.
  bool insert(std::uint64_t key, bool written) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    std::size_t at = place(key);
    for (; slots_[at] != kFree; at = next(at)) {
      if ((slots_[at] & ~kWritten) == key) return false;
    }
    slots_[at] = written ? key | kWritten : key;
    ++size_;
    return true;
  }
  bool holds(std::uint64_t key) const { return find(key) != kNowhere; }
  bool is_written(std::uint64_t key) const {
    const std::size_t at = find(key);
    return at != kNowhere && (slots_[at] & kWritten) != 0;
  }
  // False if the key is not there.
  bool mark_written(std::uint64_t key) {
    const std::size_t at = find(key);
    if (at == kNowhere) return false;
    slots_[at] |= kWritten;
    return true;
  }
  bool erase(std::uint64_t key) {
    std::size_t hole = find(key);
    if (hole == kNowhere) return false;
    for (std::size_t at = next(hole); slots_[at] != kFree; at = next(at)) {
      // The entry may fill the hole if its own place does not lie cyclically in (hole, at].
      const std::size_t home = place(slots_[at] & ~kWritten);
      if (((at - home) & (slots_.size() - 1)) >= ((at - hole) & (slots_.size() - 1))) {
        slots_[hole] = slots_[at];
        hole = at;
      }
    }
    slots_[hole] = kFree;
    --size_;
    return true;
  }
  std::size_t size() const { return size_; }

 private:
  static constexpr std::uint64_t kWritten = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  static constexpr std::size_t kNowhere = ~std::size_t{0};

  std::size_t place(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9e3779b97f4a7c15ULL) >> shift_);
  }
  std::size_t next(std::size_t at) const { return (at + 1) & (slots_.size() - 1); }
  std::size_t find(std::uint64_t key) const {
    for (std::size_t at = place(key); slots_[at] != kFree; at = next(at)) {
      if ((slots_[at] & ~kWritten) == key) return at;
    }
    return kNowhere;
  }
  void grow() {
    std::vector<std::uint64_t> old(slots_.size() * 2, kFree);
    old.swap(slots_);
    --shift_;
    for (const std::uint64_t slot : old) {
      if (slot == kFree) continue;
      std::size_t at = place(slot & ~kWritten);
      while (slots_[at] != kFree) at = next(at);
      slots_[at] = slot;
    }
  }

  std::vector<std::uint64_t> slots_ = std::vector<std::uint64_t>(16, kFree);
  int shift_ = 60;  // 64 - log2 of the slots
  std::size_t size_ = 0;
};

class RankMemory {
 public:
  TensorTable tensors;

  void hold(std::int64_t bytes, std::uint8_t category) {
    total_ += bytes;
    levels_[category] += bytes;
  }
  void drop(std::int64_t bytes, std::uint8_t category) {
    total_ -= bytes;
    levels_[category] -= bytes;
    LH_ASSERT(levels_[category] >= 0, "memory of category {} falls below zero", category);
  }
  // Notes the level after the acquires of an op.
  void note_peak(Time now, RankTotals& totals) const {
    if (total_ <= totals.peak_bytes) return;
    totals.peak_bytes = total_;
    totals.peak_time = now;
    totals.peak_categories = levels_;
  }
  std::int64_t total() const { return total_; }
  const MemoryByCategory& levels() const { return levels_; }

 private:
  std::int64_t total_ = 0;
  MemoryByCategory levels_{};
};

}  // namespace longhaul
