// A ring all-reduce chunk by chunk, on the flow solver: every send of a chunk over one hop is a flow of its own.
//
// n ranks in a ring; the buffer is n chunks of `chunk` bytes. In step k = 0 .. 2(n-1)-1 every rank sends one chunk to
// the next: in step 0 one of its own, then the one that it took in in the step before (n-1 steps reduce, n-1 gather).
// A chunk crosses `hops` links one after the other, stored whole before each (store and forward). A rank sends when the
// chunk is there and its earlier send has left the first link; each link carries one chunk at a time.
//
// With hop h of rank r taking t(r, h) = latency + chunk / bandwidth, the end E(r, k, h) of step k's hop h is
//   E(r, k, h) = t(r, h) + max(E(r, k, h-1), E(r, k-1, h)),   h > 0
//   E(r, k, 0) = t(r, 0) + max(E(r-1, k-1, last hop), E(r, k-1, 0)),
// with zero for what is before step 0: ring_ends(). If all links are equal every rank does the same, the chunk of a
// step is always the last to come, and the end is 2(n-1) hops (latency + chunk / bandwidth): the closed form.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/network/flow_solver.h"

namespace longhaul {

struct ChunkRing {
  int ranks = 0;
  int hops = 1;
  std::vector<Transfer> sends;  // rank x hops + hop, each over a link of its own; all of the same bytes
  const Transfer& send(int rank, int hop) const { return sends[static_cast<std::size_t>(rank * hops + hop)]; }
};

// Hop h of rank r is link r x hops + h of the cluster, with `latency` before the bytes.
inline ChunkRing chunk_ring(const Cluster& cluster, int ranks, int hops, std::int64_t chunk, Time latency) {
  ChunkRing ring{ranks, hops, {}};
  for (LinkId link = 0; link < ranks * hops; ++link) {
    Transfer send;
    send.loads = {{link, chunk}};
    send.byte_seconds = Bytes{chunk} / cluster.links()[static_cast<std::size_t>(link)].bandwidth;
    send.latency = latency;
    send.alone = latency + Time::from_seconds(send.byte_seconds);
    ring.sends.push_back(send);
  }
  return ring;
}

// Runs it; returns when the last chunk arrives.
inline Time run_chunk_ring(FlowSolver& solver, const ChunkRing& ring) {
  struct Hop {
    int arrived = 0;  // chunks that wait for it or have left
    int sent = 0;
    bool busy = false;
  };
  const int steps = 2 * (ring.ranks - 1);
  std::vector<Hop> hops(ring.sends.size());
  std::vector<std::uint32_t> ended;
  Time now;
  const auto send_next = [&](std::size_t at) {
    Hop& hop = hops[at];
    if (hop.busy || hop.sent == hop.arrived || hop.sent == steps) return;
    hop.busy = true;
    solver.start(now, ring.sends[at], static_cast<std::uint32_t>(at));
  };
  for (std::size_t rank = 0; rank < hops.size(); rank += static_cast<std::size_t>(ring.hops)) {
    hops[rank].arrived = 1;
    send_next(rank);
  }
  Time last;
  for (Time next = solver.next(); next != Time::max(); next = solver.next()) {
    now = next;
    ended.clear();
    solver.advance(now, ended);
    if (!ended.empty()) last = now;
    for (const std::uint32_t at : ended) {
      hops[at].busy = false;
      ++hops[at].sent;
      const std::size_t to = (at + 1) % hops.size();
      ++hops[to].arrived;
      send_next(to);
      send_next(at);
    }
  }
  return last;
}

// The recurrence, all in picoseconds.
inline Time ring_ends(const ChunkRing& ring) {
  std::vector<Time> before(ring.sends.size());  // E(., k-1, .)
  std::vector<Time> now(ring.sends.size());
  for (int step = 0; step < 2 * (ring.ranks - 1); ++step) {
    for (std::size_t at = 0; at < now.size(); ++at) {
      const bool first = at % static_cast<std::size_t>(ring.hops) == 0;
      const std::size_t previous = (at + now.size() - 1) % now.size();
      const Time there = first ? before[previous] : now[previous];
      now[at] = std::max(there, before[at]) + ring.sends[at].alone;
    }
    std::swap(before, now);
  }
  return *std::max_element(before.begin(), before.end());
}

}  // namespace longhaul
