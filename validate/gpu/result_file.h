// The CSV file of a measurement: '#' lines that say how and on what, a line of columns, one row a measured point.
//
// A row is written whole and flushed at once, so that an interrupted run leaves only whole rows behind (a last line
// without its line end is cut off on resuming). Fields hold no commas and no line ends (LH_ASSERT).
#pragma once

#include <cstddef>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "sim/core/error.h"

namespace longhaul {

struct ResultFormat {
  // Without '#'. `identity` must be the same for a run to be resumed (device, versions, settings); `notes` (date) are
  // written once.
  std::vector<std::string> identity, notes;
  std::vector<std::string> columns;
  // Which columns name a point; measured ones follow.
  std::vector<std::string> key_columns;
};

class ResultFile {
 public:
  // Starts `file`, or continues it when `resume` is set and it is there. Errors: it is there and `resume` is not set;
  // it cannot be written; other columns or another identity (each line that is missing is named); rows with a wrong
  // number of fields.
  static Expected<ResultFile> open(const std::string& file, const ResultFormat& format, bool resume);

  // Whether a row with these key fields is there.
  bool has(const std::vector<std::string>& key) const { return keys_.contains(key); }
  std::size_t row_count() const { return keys_.size(); }

  // One field a column. Throws LimitError when the file can no longer be written.
  void append(const std::vector<std::string>& fields);

 private:
  explicit ResultFile(const std::string& file, const ResultFormat& format);
  std::vector<std::string> key_of(const std::vector<std::string>& fields) const;

  std::string file_;
  std::vector<std::size_t> key_indices_;
  std::size_t column_count_ = 0;
  std::set<std::vector<std::string>> keys_;
  std::ofstream out_;
};

}  // namespace longhaul
