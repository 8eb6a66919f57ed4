#include "sim/analysis/op_graph.h"

#include <algorithm>
#include <utility>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

// The latest record that counts, by stream, -1 for none: what one who waits for an op waits for.
using Frontier = std::vector<std::int32_t>;

// Walks the program of one rank and links its records.
class RankLinker {
 public:
  RankLinker(const Schedule& schedule, std::int32_t rank, OpGraph& graph)
      : schedule_(&schedule),
        graph_(&graph),
        rank_(rank),
        next_(static_cast<std::size_t>(graph.streams), 0),
        tails_(next_.size(), Frontier(next_.size(), -1)),
        events_(kEventSlots, Frontier(next_.size(), -1)) {}

  void run() {
    Cursor cursor(rank_);
    OpInstance at;
    while (cursor.next(*schedule_, at)) add(at);
    for (std::size_t stream = 0; stream < next_.size(); ++stream) {
      LH_ASSERT(next_[stream] == records(stream).size(), "rank {} stream {}: {} records, {} are in its program", rank_,
                stream, records(stream).size(), next_[stream]);
    }
  }

 private:
  static constexpr std::size_t kEventSlots = 128;  // EventSlot is 0 .. 127

  const std::vector<std::int32_t>& records(std::size_t stream) const {
    return graph_->by_stream[static_cast<std::size_t>(rank_) * next_.size() + stream];
  }

  // The record of the op if it left one. Whether an op is empty follows from its place, so equal places are alike.
  std::int32_t record_of(const OpInstance& at, std::size_t stream) {
    const std::vector<std::int32_t>& list = records(stream);
    if (next_[stream] == list.size()) return -1;
    const std::int32_t index = list[next_[stream]];
    const OpRecord& record = graph_->records[static_cast<std::size_t>(index)];
    const bool same = record.segment == at.segment && record.index == at.index && record.chunk == at.chunk &&
                      record.layer == at.layer;
    if (!same) return -1;
    ++next_[stream];
    return index;
  }

  // Later records of a stream replace earlier ones.
  void merge(const Frontier& other, Frontier& into) const {
    for (std::size_t stream = 0; stream < into.size(); ++stream) {
      if (other[stream] < 0) continue;
      const auto place = [&](std::int32_t record) { return graph_->place[static_cast<std::size_t>(record)]; };
      if (into[stream] < 0 || place(other[stream]) > place(into[stream])) into[stream] = other[stream];
    }
  }

  void add(const OpInstance& at) {
    const auto stream = static_cast<std::size_t>(at.op->stream);
    Frontier waits = tails_[stream];
    for (const EventSlot slot : at.op->waits) merge(events_[static_cast<std::size_t>(slot)], waits);
    const std::int32_t record = record_of(at, stream);
    if (record >= 0) {
      const auto index = static_cast<std::size_t>(record);
      std::vector<std::int32_t>& launched = graph_->by_rank[static_cast<std::size_t>(rank_)];
      graph_->place[index] = static_cast<std::int32_t>(launched.size());
      launched.push_back(record);
      graph_->wait_begin[index] = static_cast<std::int32_t>(graph_->waits.size());
      for (const std::int32_t other : waits) {
        if (other >= 0) graph_->waits.push_back(other);
      }
      graph_->wait_end[index] = static_cast<std::int32_t>(graph_->waits.size());
      std::fill(waits.begin(), waits.end(), -1);
      waits[stream] = record;
    }
    if (at.op->record != kNoEvent) events_[static_cast<std::size_t>(at.op->record)] = waits;
    tails_[stream] = std::move(waits);
  }

  const Schedule* schedule_;
  OpGraph* graph_;
  std::int32_t rank_;
  std::vector<std::size_t> next_;  // by stream: the next record to be met
  std::vector<Frontier> tails_;    // by stream: what its latest op stands for
  std::vector<Frontier> events_;   // by slot
};

}  // namespace

OpGraph link_ops(const Schedule& schedule, std::vector<OpRecord> records) {
  OpGraph graph;
  graph.records = std::move(records);
  graph.streams = schedule.streams();
  const auto streams = static_cast<std::size_t>(graph.streams);
  graph.by_rank.resize(schedule.ranks.size());
  graph.by_stream.resize(schedule.ranks.size() * streams);
  graph.place.resize(graph.records.size());
  graph.wait_begin.resize(graph.records.size());
  graph.wait_end.resize(graph.records.size());
  std::vector<bool> runs(schedule.ranks.size(), false);
  for (std::size_t i = 0; i < graph.records.size(); ++i) {
    const auto rank = static_cast<std::size_t>(graph.records[i].rank);
    runs[rank] = true;
    graph.by_stream[rank * streams + static_cast<std::size_t>(graph.records[i].stream)].push_back(
        static_cast<std::int32_t>(i));
  }
  for (std::size_t rank = 0; rank < runs.size(); ++rank) {
    if (runs[rank]) RankLinker(schedule, static_cast<std::int32_t>(rank), graph).run();
  }
  return graph;
}

}  // namespace longhaul
