// Bytes on links and the traffic of members while one transfer is put together.
//
// Scratch space of a Collectives: begin(), put and send, take(). Nothing is left between transfers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/network/transfer.h"

namespace longhaul {

class LoadSheet {
 public:
  // `cluster` must outlive this.
  explicit LoadSheet(const Cluster& cluster);

  const Cluster& cluster() const { return *cluster_; }

  // Members in their order. Asserts that they are ranks of the cluster and that none comes twice.
  void begin(std::span<const int> ranks);

  // What a member sends and receives; to be filled by who puts loads without send().
  MemberTraffic& member(int rank);

  void put(LinkId link, std::int64_t bytes);
  // On every link of the route; nothing for no bytes.
  void put_route(int from, int to, std::int64_t bytes);
  // A message of `bytes` on its route, sent by the one member and received by the other.
  void send(int from, int to, std::int64_t bytes);

  // One copy of `bytes` on every link that any of the routes uses: what switches that multicast (routes from one rank)
  // or reduce (routes to one rank) move. begin_union() starts a new set of links.
  void begin_union() { ++union_; }
  void add_route_to_union(int from, int to, std::int64_t bytes);
  // Only the link out of `from` on its route to another rank; only the link into `to`.
  void add_first_link_to_union(int from, int to, std::int64_t bytes);
  void add_last_link_to_union(int from, int to, std::int64_t bytes);

  // Operands that a switch took in beyond the first, copies that it made beyond the first.
  void add_merged(std::int64_t bytes) { merged_ += bytes; }
  void add_copied(std::int64_t bytes) { copied_ += bytes; }

  // Moves loads and members into the transfer, sums the members, and is empty again.
  void take(Transfer& transfer);

  // Links with loads, in no order.
  std::span<const LinkId> touched() const { return actual_.touched; }
  std::int64_t load(LinkId link) const { return actual_.load[static_cast<std::size_t>(link)]; }

  // The same where no link is down: what NCCL's time of the call is told to hold for.
  std::span<const LinkId> undamaged_touched() const { return undamaged_ ? undamaged_->loads.touched : touched(); }
  std::int64_t undamaged_load(LinkId link) const {
    return undamaged_ ? undamaged_->loads.load[static_cast<std::size_t>(link)] : load(link);
  }

 private:
  struct Loads {
    explicit Loads(std::size_t links) : load(links), seen(links) {}
    void put(LinkId link, std::int64_t bytes);
    void put_once(LinkId link, std::int64_t bytes, std::uint64_t union_number);

    std::vector<std::int64_t> load;  // by link; zero between transfers
    std::vector<LinkId> touched;
    std::vector<std::uint64_t> seen;  // by link: the last union that it was in
  };
  struct Undamaged {
    explicit Undamaged(const Cluster& damaged)
        : cluster(damaged.with_what_ifs_down(0)), loads(damaged.links().size()) {}
    Cluster cluster;
    Loads loads;
  };

  const Cluster* cluster_;
  Loads actual_;
  std::unique_ptr<Undamaged> undamaged_;  // set where links are down
  std::vector<std::int32_t> slot_;        // by rank; -1 between transfers
  std::vector<MemberTraffic> members_;
  std::uint64_t union_ = 0;
  std::int64_t merged_ = 0;
  std::int64_t copied_ = 0;
};

}  // namespace longhaul
