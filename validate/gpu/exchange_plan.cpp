#include "validate/gpu/exchange_plan.h"

#include <fmt/format.h>

#include <functional>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

constexpr std::int64_t kPartElements = 4;

using Weight = std::function<std::int64_t(int from, int to)>;

// Shares of `elements` in proportion to weight / total, rounded down to whole parts.
std::int64_t share(std::int64_t elements, std::int64_t weight, std::int64_t total) {
  // Quotient and remainder apart: elements x weight stays far from 2^63.
  const std::int64_t whole = elements / total * weight + elements % total * weight / total;
  return whole / kPartElements * kPartElements;
}

ExchangePlan all_to_all_plan(std::string name, int ranks, std::int64_t bytes, const Weight& weight) {
  ExchangePlan plan{std::move(name), ranks, false, {}};
  std::int64_t total = 0;
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) total += weight(from, to);
  }
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      plan.counts.push_back(share(bytes / kElementBytes * ranks, weight(from, to), total));
    }
  }
  return plan;
}

ExchangePlan all_gather_plan(std::string name, int ranks, std::int64_t bytes, const Weight& weight) {
  ExchangePlan plan{std::move(name), ranks, true, {}};
  std::int64_t total = 0;
  for (int from = 0; from < ranks; ++from) total += weight(from, 0);
  for (int from = 0; from < ranks; ++from) {
    const std::int64_t part = share(bytes / kElementBytes, weight(from, 0), total);
    plan.counts.insert(plan.counts.end(), static_cast<std::size_t>(ranks), part);
  }
  return plan;
}

}  // namespace

std::int64_t ExchangePlan::send_offset(int from, int to) const {
  if (gather) return 0;
  std::int64_t offset = 0;
  for (int before = 0; before < to; ++before) offset += count(from, before);
  return offset;
}

std::int64_t ExchangePlan::receive_offset(int to, int from) const {
  std::int64_t offset = 0;
  for (int before = 0; before < from; ++before) offset += count(before, to);
  return offset;
}

std::int64_t ExchangePlan::send_count(int rank) const { return gather ? count(rank, 0) : send_offset(rank, ranks); }

std::int64_t ExchangePlan::receive_count(int rank) const { return receive_offset(rank, ranks); }

std::string ExchangePlan::bytes_text() const {
  std::string text;
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      text += fmt::format("{}{}", to == 0 ? (from == 0 ? "" : ";") : "/", count(from, to) * kElementBytes);
    }
  }
  return text;
}

std::vector<ReceivedRun> received_runs(const ExchangePlan& plan, int rank) {
  std::vector<ReceivedRun> runs;
  for (int from = 0; from < plan.ranks; ++from) {
    const std::int64_t count = plan.count(from, rank);
    if (count == 0) continue;
    runs.push_back({from, plan.send_offset(from, rank), plan.receive_offset(rank, from), count});
  }
  return runs;
}

std::vector<ExchangePlan> all_to_all_plans(int ranks, std::int64_t bytes) {
  LH_ASSERT(ranks >= 2, "an exchange among {} ranks", ranks);
  const int last = ranks - 1;
  std::vector<ExchangePlan> plans;
  const auto add = [&](const char* name, const Weight& weight) {
    plans.push_back(all_to_all_plan(name, ranks, bytes, weight));
  };
  add("even", [](int, int) { return 1; });
  add("keep", [&](int from, int to) { return from == to ? 3 * last : 1; });
  add("hot-receiver", [&](int, int to) { return to == last ? 4 : 1; });
  add("hot-sender", [&](int from, int) { return from == last ? 4 : 1; });
  add("one-way", [](int from, int to) { return to >= from ? 1 : 0; });
  return plans;
}

std::vector<ExchangePlan> all_gather_plans(int ranks, std::int64_t bytes) {
  LH_ASSERT(ranks >= 2, "an exchange among {} ranks", ranks);
  const int last = ranks - 1;
  std::vector<ExchangePlan> plans;
  const auto add = [&](const char* name, const Weight& weight) {
    plans.push_back(all_gather_plan(name, ranks, bytes, weight));
  };
  add("even", [](int, int) { return 1; });
  add("linear", [](int from, int) { return from + 1; });
  add("heavy", [&](int from, int) { return from == 0 ? 7 * last : 1; });
  add("one-empty", [&](int from, int) { return from == last ? 0 : 1; });
  return plans;
}

}  // namespace longhaul
