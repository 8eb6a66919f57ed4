// Collectives as NCCL runs them, turned into transfers: bytes a link (exact) and the time alone.
//
// The algorithm, protocol and channels are those that NCCL takes (sim/network/nccl/model.h); what each puts on links
// stands in sim/network/algorithm_loads.h. Time alone: latency is NcclTime::fixed_us and what wires take longer than
// those that the constants were fitted on (wire_latency.h); the byte phase is NcclTime::bytes_us, or what the most
// loaded link needs if that is more (protocol_rate.h).
//
// * Groups span any ranks: uneven over NVLink domains, strided, a part of a domain. NCCL is told of the largest number
//   of members in a domain.
// * Per-rank sizes, as PyTorch's NCCL back end runs them. all_gather_v: one broadcast a member in one NCCL group;
//   reduce_scatter_v: one reduce a member (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, outputs of unequal size).
//   NCCL has only rings for both and chooses protocol and channels for all of a group's calls together. all_to_all_v:
//   sends and receives, as all_to_all. The equal, padded form is all_gather or reduce_scatter of the largest part.
// * exchange (all-to-all(v), ring hop, pipeline edge, halo): every message on its own route, one phase. Between rails
//   a GPU hands its message over NVLink to the GPU of its peer's rail (PXN); the cluster's routes say so.
//
// Ignores: registered buffers, the order in which an exchange's peers are served, copies inside a GPU as loads.
// A Collectives keeps scratch space: not to be shared between threads. Results do not depend on earlier calls.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/core/units.h"
#include "sim/network/load_sheet.h"
#include "sim/network/nccl/model.h"
#include "sim/network/protocol_rate.h"
#include "sim/network/transfer.h"
#include "sim/network/wire_latency.h"

namespace longhaul {

// `bytes` from one rank to another; from == to is a local copy and moves nothing on links.
struct PeerMessage {
  int from = 0;
  int to = 0;
  Bytes bytes;
};

class Collectives {
 public:
  // `cluster` must outlive this. Without constants: those that ship (sim/network/shipped_nccl.h).
  explicit Collectives(const Cluster& cluster);
  Collectives(const Cluster& cluster, const NcclConstants& constants);

  // What NCCL is told of the machine from now on, instead of what the topology says: another version, settings.
  void set_machine(const NcclMachine& machine) { machine_ = machine; }

  // `ranks`: distinct ranks in member order, at least one. A group of one, or no bytes: an empty transfer of no time.
  // Each member gives `per_rank` bytes and ends with all of them. Ring and PAT: every rank sends (n-1) x per_rank.
  Transfer all_gather(std::span<const int> ranks, Bytes per_rank);
  // Each member gives n x per_rank_result bytes and ends with its own reduced part. Ring and PAT: every rank sends
  // (n-1) x per_rank_result.
  Transfer reduce_scatter(std::span<const int> ranks, Bytes per_rank_result);
  // Ring: n equal parts, the last ones padded; every rank sends 2 (n-1) ceil(buffer / n).
  Transfer all_reduce(std::span<const int> ranks, Bytes buffer);
  // From ranks[0] along the rings: every other member takes the buffer in once.
  Transfer broadcast(std::span<const int> ranks, Bytes buffer);
  // Every member sends `per_peer` to each other one, and as much to itself. Where routes follow patterns
  // (Cluster::routes_by_pattern) loads come from counts of members (all_pairs.h), else from every pair.
  Transfer all_to_all(std::span<const int> ranks, Bytes per_peer);
  // nccl-tests' sendrecv: every member sends `message` to the next and receives as much from the one before.
  Transfer send_receive(std::span<const int> ranks, Bytes message);

  // Member i gives parts[i] bytes and ends with all of them.
  Transfer all_gather_v(std::span<const int> ranks, std::span<const Bytes> parts);
  // Member i ends with its reduced part of parts[i] bytes.
  Transfer reduce_scatter_v(std::span<const int> ranks, std::span<const Bytes> parts);
  // Member i sends messages[i * n + j] to member j.
  Transfer all_to_all_v(std::span<const int> ranks, std::span<const Bytes> messages);

  // One group of sends and receives.
  Transfer exchange(std::span<const PeerMessage> messages);
  // What is left of `whole`, the exchange of these messages, when its last member comes: member ranks[i] has waited
  // `waited[i]` by then. A message passes once both its ranks are there: every peer has warps and channels of its own,
  // up to eight peers share a channel's block at once (NCCL: src/enqueue.cc, NCCL_MAX_DEV_WORK_P2P_PER_BATCH; later
  // ones come in order, which is ignored). So those that wait for a member, or for one that came after it, begin when
  // it comes, and the end is the latest of (its coming + the time of these alone): for one link that serves messages as
  // they are ready exactly, else at least. `loads` and times are those of what is left; bytes and members of the
  // messages that are not over.
  Transfer exchange_left(const Transfer& whole, std::span<const PeerMessage> messages, std::span<const int> ranks,
                         std::span<const Time> waited);
  // Whether it is ever less than the whole: not where each member alone has as much to do as the busiest one, as in
  // an all-to-all or a ring, nor between two.
  bool waits_matter(std::span<const PeerMessage> messages, std::span<const int> ranks) const;
  // Channels that one member's part of an exchange takes of its GPU, known before the others have come: `ranks` and
  // `domains` of the communicator; `peers`: that it sends to or receives from, whichever are more.
  int exchange_channels(int ranks, int domains, int peers, Bytes largest_message) const;

 private:
  struct Peers;  // who sends to whom in an exchange

  NcclTime time_of(const CommGroup& group, NcclCollective collective, std::int64_t bytes) const;
  int heads_of(const CommGroup& group) const;
  // Takes the loads out of the sheet and sets all times.
  Transfer finish(const NcclTime& time, double extra_us, int largest, int far_peers = 0);
  Transfer gather_or_scatter(std::span<const int> ranks, std::int64_t part, bool scatter);
  Transfer ring_of_parts(std::span<const int> ranks, std::span<const Bytes> parts, bool scatter);
  Transfer all_to_all_by_pattern(std::span<const int> ranks, Bytes per_peer);
  Transfer all_to_all_by_pair(std::span<const int> ranks, Bytes per_peer);
  Peers put_messages(std::span<const PeerMessage> messages);
  NcclExchange describe(const Peers& peers) const;
  double busiest_link() const;

  const Cluster* cluster_;
  const NcclConstants* constants_;
  NcclMachine machine_;
  WireLatency wires_;
  LoadSheet sheet_;
};

// How many of an exchange's channels a member has in the mean while data move: NCCL's kernel has a block for each,
// which leaves with its partner's message where it serves one alone. `messages`: sum over the partners of the larger of
// what is sent and received, `largest`: the largest of those. With more partners than channels all are taken to stay.
int moving_channels(int channels, int partners, Bytes messages, Bytes largest);

}  // namespace longhaul
