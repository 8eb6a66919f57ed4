// What each algorithm of NCCL puts on links and what its members send: exact bytes, whatever the group looks like.
//
// n ranks, D NVLink domains, S the buffer as nccl-tests counts it. Channels begin at different members, so whatever one
// channel asks of its first GPU (a NIC, the end of a chain) is spread evenly over the members of a domain.
//
// * Ring. Every member takes in what the others have: (n-1)/n S (twice for all-reduce). A boundary between two domains
//   is crossed by the ring's whole traffic once, spread over the NICs of all members. Inside a domain a member passes
//   to the next one on a switch; over direct pair links the rings take all orders of the members, so a member's traffic
//   spreads evenly over the links to all others (NCCL's search finds such rings too).
// * Tree. Two binary trees over domains carry half of S each (ncclGetDtree), a chain inside each domain all of it;
//   every edge carries its part up and down. Inner domains of one tree are leaves of the other: 2 S out of a domain (S
//   over two domains), whatever D is.
// * NVLS, one domain. Member i owns part i. A load that reduces (multimem.ld_reduce) makes the switch read the part
//   from every member, the owner too, and hands one result down; a store that multicasts goes up once and down to every
//   member, the owner too. All-reduce: (1 + 1/n) S up and down every GPU. Gather: S/n up, S down. Scatter: S up, S/n
//   down. What switches merge and copy is counted apart (Transfer).
// * NVLSTree. As NVLS inside each domain, with the result of a head's part going up and down the two trees over
//   domains before it is multicast.
// * CollNet (SHARP). The network's switches reduce: each head's part leaves its domain once and comes back once, and
//   every link between switches carries it once each way. Inside a domain: direct sends (CollNetDirect), a chain
//   (CollNetChain), or NVLS.
// * PAT, one member a domain. Binomial trees of all ranks at once: to the rank 2^k further go as many parts as there
//   are odd multiples of 2^k below n; (n-1)/n S in all. Jeaugey, "PAT", 2025; NCCL 2.23.
// Each function is called between begin() and take() of the sheet.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/network/comm_group.h"
#include "sim/network/load_sheet.h"

namespace longhaul {

// Bytes by member, shaped like CommGroup::domains.
using MemberBytesTable = std::vector<std::vector<std::int64_t>>;

// A ring in which every member takes in `in` of it. `root` (-1: none) takes in nothing and its domain nothing from
// outside: a broadcast. `backwards`: every message goes the other way, so that `in` is what a member sends.
void put_ring(LoadSheet& sheet, const CommGroup& group, const MemberBytesTable& in, int root = -1,
              bool backwards = false);
// Every member takes in and sends `each`.
void put_even_ring(LoadSheet& sheet, const CommGroup& group, std::int64_t each);

// Half of `bytes` up and down every edge of each of the two trees over `heads`, one a domain.
void put_tree_edges(LoadSheet& sheet, const std::vector<int>& heads, std::int64_t bytes);
// `bytes` to the first member of each domain's chain and back; the chain of `channel` begins at that member.
void put_chains(LoadSheet& sheet, const CommGroup& group, std::size_t channel, std::int64_t bytes);
void put_tree(LoadSheet& sheet, const CommGroup& group, std::int64_t buffer);

// Parts of one member; all-reduce cuts `buffer` itself.
void put_nvls_all_reduce(LoadSheet& sheet, const CommGroup& group, std::int64_t buffer);
void put_nvls_tree(LoadSheet& sheet, const CommGroup& group, int heads, std::int64_t buffer);

enum class InsideDomain : std::uint8_t { kDirect, kChain, kNvls };
// `heads`: members of a domain that talk to the network; at most CommGroup::smallest.
void put_collnet_all_reduce(LoadSheet& sheet, const CommGroup& group, int heads, InsideDomain inside,
                            std::int64_t buffer);

// One switch system (NVLS on one domain) or SHARP between domains; every member gives (gather) or takes (scatter)
// `part`.
void put_switch_gather(LoadSheet& sheet, const CommGroup& group, int heads, InsideDomain inside, std::int64_t part);
void put_switch_scatter(LoadSheet& sheet, const CommGroup& group, int heads, InsideDomain inside, std::int64_t part);

void put_pat(LoadSheet& sheet, const CommGroup& group, std::int64_t part, bool scatter);

}  // namespace longhaul
