// NVLS and CollNet: algorithms in which switches reduce and multicast.
#include <algorithm>

#include "sim/core/invariant.h"
#include "sim/network/algorithm_loads.h"

namespace longhaul {
namespace {

// Another member; there are two at least.
int other_than(const std::vector<int>& members, int rank) { return members[0] == rank ? members[1] : members[0]; }

// `owner` loads `bytes` that the NVSwitch reduces over all members.
void reduce_in_switch(LoadSheet& sheet, const std::vector<int>& members, int owner, std::int64_t bytes) {
  if (members.size() == 1 || bytes == 0) return;
  sheet.begin_union();
  for (const int rank : members) {
    if (rank != owner) sheet.add_route_to_union(rank, owner, bytes);
    sheet.member(rank).sent_intra_node += bytes;
  }
  sheet.add_first_link_to_union(owner, other_than(members, owner), bytes);
  sheet.member(owner).received += bytes;
  sheet.add_merged(bytes * static_cast<std::int64_t>(members.size() - 1));
}

// `owner` stores `bytes` that the NVSwitch hands to all members.
void multicast_in_switch(LoadSheet& sheet, const std::vector<int>& members, int owner, std::int64_t bytes) {
  if (members.size() == 1 || bytes == 0) return;
  sheet.begin_union();
  for (const int rank : members) {
    if (rank != owner) sheet.add_route_to_union(owner, rank, bytes);
    sheet.member(rank).received += bytes;
  }
  sheet.add_last_link_to_union(other_than(members, owner), owner, bytes);
  sheet.member(owner).sent_intra_node += bytes;
  sheet.add_copied(bytes * static_cast<std::int64_t>(members.size() - 1));
}

// Operands of all members to `head`.
void gather_inside(LoadSheet& sheet, const std::vector<int>& members, int head, InsideDomain inside,
                   std::int64_t bytes) {
  if (inside == InsideDomain::kNvls) return reduce_in_switch(sheet, members, head, bytes);
  for (const int rank : members) sheet.send(rank, head, bytes);
}
// The result of `head` to all members.
void spread_inside(LoadSheet& sheet, const std::vector<int>& members, int head, InsideDomain inside,
                   std::int64_t bytes) {
  if (inside == InsideDomain::kNvls) return multicast_in_switch(sheet, members, head, bytes);
  for (const int rank : members) sheet.send(head, rank, bytes);
}

// The network's switches hand what `from` sends once to all other heads.
void multicast_between(LoadSheet& sheet, const std::vector<int>& heads, int from, std::int64_t bytes) {
  if (heads.size() == 1 || bytes == 0) return;
  sheet.begin_union();
  for (const int head : heads) {
    if (head == from) continue;
    sheet.add_route_to_union(from, head, bytes);
    sheet.member(head).received += bytes;
  }
  sheet.member(from).sent_inter_node += bytes;
  sheet.add_copied(bytes * static_cast<std::int64_t>(heads.size() - 2));
}

// They reduce what all other heads send, and hand `to` the result.
void reduce_between(LoadSheet& sheet, const std::vector<int>& heads, int to, std::int64_t bytes) {
  if (heads.size() == 1 || bytes == 0) return;
  sheet.begin_union();
  for (const int head : heads) {
    if (head == to) continue;
    sheet.add_route_to_union(head, to, bytes);
    sheet.member(head).sent_inter_node += bytes;
  }
  sheet.member(to).received += bytes;
  sheet.add_merged(bytes * static_cast<std::int64_t>(heads.size() - 2));
}

// All heads give `bytes`, the switches reduce, all heads take the result. On the way up to the root of SHARP's tree and
// down again every link carries one copy: seen from the first head, the links from the others to it and back.
void all_reduce_between(LoadSheet& sheet, const std::vector<int>& heads, std::int64_t bytes) {
  if (heads.size() == 1 || bytes == 0) return;
  sheet.begin_union();
  for (std::size_t i = 1; i < heads.size(); ++i) sheet.add_route_to_union(heads[i], heads[0], bytes);
  sheet.begin_union();
  for (std::size_t i = 1; i < heads.size(); ++i) sheet.add_route_to_union(heads[0], heads[i], bytes);
  for (const int head : heads) {
    sheet.member(head).sent_inter_node += bytes;
    sheet.member(head).received += bytes;
  }
  const std::int64_t others = bytes * static_cast<std::int64_t>(heads.size() - 1);
  sheet.add_merged(others);
  sheet.add_copied(others);
}

// The head of each domain for part `index` of `heads`: spread evenly over the members, and over their NICs.
std::vector<int> heads_of(const CommGroup& group, int heads, int index) {
  LH_ASSERT(heads >= 1 && heads <= group.smallest, "{} heads of {} members", heads, group.smallest);
  std::vector<int> ranks;
  for (const std::vector<int>& members : group.domains) {
    ranks.push_back(members[members.size() * static_cast<std::size_t>(index) / static_cast<std::size_t>(heads)]);
  }
  return ranks;
}

std::int64_t part_of(std::int64_t buffer, int parts, int index) {
  return even_part(buffer, static_cast<std::size_t>(parts), static_cast<std::size_t>(index));
}

// Member `i` of `members` uses this head of the domain.
int head_of_member(const std::vector<int>& members, int heads, std::size_t i) {
  return static_cast<int>(i * static_cast<std::size_t>(heads) / members.size());
}

}  // namespace

void put_nvls_all_reduce(LoadSheet& sheet, const CommGroup& group, std::int64_t buffer) {
  LH_ASSERT(group.domains.size() == 1, "NVLS alone over {} domains", group.domains.size());
  const std::vector<int>& members = group.domains[0];
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::int64_t part = even_part(buffer, members.size(), i);
    reduce_in_switch(sheet, members, members[i], part);
    multicast_in_switch(sheet, members, members[i], part);
  }
}

void put_nvls_tree(LoadSheet& sheet, const CommGroup& group, int heads, std::int64_t buffer) {
  for (int index = 0; index < heads; ++index) {
    const std::int64_t part = part_of(buffer, heads, index);
    const std::vector<int> of_domain = heads_of(group, heads, index);
    for (std::size_t domain = 0; domain < group.domains.size(); ++domain) {
      reduce_in_switch(sheet, group.domains[domain], of_domain[domain], part);
      multicast_in_switch(sheet, group.domains[domain], of_domain[domain], part);
    }
    put_tree_edges(sheet, of_domain, part);
  }
}

void put_collnet_all_reduce(LoadSheet& sheet, const CommGroup& group, int heads, InsideDomain inside,
                            std::int64_t buffer) {
  if (inside == InsideDomain::kChain) {
    const auto channels = static_cast<std::size_t>(group.largest);
    for (std::size_t channel = 0; channel < channels; ++channel) {
      const std::int64_t part = even_part(buffer, channels, channel);
      put_chains(sheet, group, channel, part);
      std::vector<int> ends;
      for (std::size_t domain = 0; domain < group.domains.size(); ++domain)
        ends.push_back(group.member(domain, channel));
      all_reduce_between(sheet, ends, part);
    }
    return;
  }
  for (int index = 0; index < heads; ++index) {
    const std::int64_t part = part_of(buffer, heads, index);
    const std::vector<int> of_domain = heads_of(group, heads, index);
    for (std::size_t domain = 0; domain < group.domains.size(); ++domain) {
      gather_inside(sheet, group.domains[domain], of_domain[domain], inside, part);
      spread_inside(sheet, group.domains[domain], of_domain[domain], inside, part);
    }
    all_reduce_between(sheet, of_domain, part);
  }
}

void put_switch_gather(LoadSheet& sheet, const CommGroup& group, int heads, InsideDomain inside, std::int64_t part) {
  for (std::size_t domain = 0; domain < group.domains.size(); ++domain) {
    const std::vector<int>& members = group.domains[domain];
    for (std::size_t i = 0; i < members.size(); ++i) {
      spread_inside(sheet, members, members[i], inside, part);
      if (group.domains.size() == 1) continue;
      const std::vector<int> of_domain = heads_of(group, heads, head_of_member(members, heads, i));
      multicast_between(sheet, of_domain, of_domain[domain], part);
      for (std::size_t other = 0; other < group.domains.size(); ++other) {
        if (other != domain) spread_inside(sheet, group.domains[other], of_domain[other], inside, part);
      }
    }
  }
}

void put_switch_scatter(LoadSheet& sheet, const CommGroup& group, int heads, InsideDomain inside, std::int64_t part) {
  for (std::size_t domain = 0; domain < group.domains.size(); ++domain) {
    const std::vector<int>& members = group.domains[domain];
    for (std::size_t i = 0; i < members.size(); ++i) {
      gather_inside(sheet, members, members[i], inside, part);
      if (group.domains.size() == 1) continue;
      const std::vector<int> of_domain = heads_of(group, heads, head_of_member(members, heads, i));
      for (std::size_t other = 0; other < group.domains.size(); ++other) {
        if (other != domain) gather_inside(sheet, group.domains[other], of_domain[other], inside, part);
      }
      reduce_between(sheet, of_domain, of_domain[domain], part);
      sheet.send(of_domain[domain], members[i], part);
    }
  }
}

}  // namespace longhaul
