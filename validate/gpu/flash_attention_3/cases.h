// The calls to time, read from a text file, and how they are written down.
//
// A file is CSV without quotes: lines of '#' are comments, the first other line names the columns (any order), every
// further line is a case. Columns: name; pass (fwd, bwd); mask (causal, full); q_heads; kv_heads; list; and, if wanted,
// longest and layout. `list` is "count*QxK;count*QxK..." in the order of the call, queries x keys, both tokens;
// a causal piece is aligned at its bottom right, so it has no more queries than keys. `longest`: the longest length
// that the call is told, of queries and of keys; 0 or empty: the longest piece's own. `layout`: varlen (the default) or
// dense, whose list is one entry, a batch.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace longhaul {

// What is wrong with a file of cases: the text names the file, the line and the field.
class CaseError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct AttentionEntry {
  std::int64_t count = 0, queries = 0, keys = 0;
};

struct AttentionCase {
  std::string name;
  bool backward = false, causal = false, dense = false;
  int q_heads = 0, kv_heads = 0;
  std::vector<AttentionEntry> entries;
  std::string list;  // as it was written
  std::int64_t longest = 0;

  std::int64_t pieces() const;
  std::int64_t total_queries() const;
  std::int64_t total_keys() const;
  // What the call is told.
  std::int64_t longest_queries() const;
  std::int64_t longest_keys() const;
};

// The cases in order. Throws CaseError.
std::vector<AttentionCase> read_cases(const std::string& file);

// `list` of a case; throws CaseError without the place.
std::vector<AttentionEntry> parse_list(const std::string& text);

}  // namespace longhaul
