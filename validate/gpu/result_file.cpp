#include "validate/gpu/result_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/algorithm/string.hpp>
#include <filesystem>
#include <iterator>

#include "sim/core/invariant.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  boost::split(fields, line, boost::is_any_of(","));
  return fields;
}

// The file as it stands.
struct Existing {
  std::vector<std::string> comments, rows;
  std::vector<int> row_lines;
  std::string columns;
  std::size_t whole_bytes = 0;  // up to the last line end
};

Expected<Existing> read_existing(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (!in) return tl::unexpected(Errors{{file, "", "cannot be read", "", ""}});
  Existing existing;
  existing.whole_bytes = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
  int number = 0;
  for (std::size_t from = 0; from < existing.whole_bytes;) {
    const std::size_t end = text.find('\n', from);
    const std::string line = text.substr(from, end - from);
    from = end + 1;
    ++number;
    if (line.starts_with("# ")) {
      existing.comments.push_back(line.substr(2));
    } else if (existing.columns.empty()) {
      existing.columns = line;
    } else {
      existing.rows.push_back(line);
      existing.row_lines.push_back(number);
    }
  }
  return existing;
}

// Why rows of this run may not follow those of the file.
Errors resume_faults(const std::string& file, const Existing& existing, const ResultFormat& format) {
  Errors errors;
  for (const std::string& line : format.identity) {
    if (std::find(existing.comments.begin(), existing.comments.end(), line) != existing.comments.end()) continue;
    // The line of the same name ("driver: ..."), so that both can be read.
    const std::string name = line.substr(0, line.find(':') + 1);
    const auto other = std::find_if(existing.comments.begin(), existing.comments.end(),
                                    [&](const std::string& comment) { return comment.starts_with(name); });
    const std::string message = name.empty() || other == existing.comments.end()
                                    ? fmt::format("was not measured with \"{}\"", line)
                                    : fmt::format("was measured with \"{}\", not with \"{}\"", *other, line);
    errors.push_back({file, "", message, "a file of the same set-up", ""});
  }
  const std::string columns = fmt::format("{}", fmt::join(format.columns, ","));
  if (existing.columns != columns) {
    errors.push_back({file, "", fmt::format("has the columns \"{}\"", existing.columns), columns, ""});
    return errors;
  }
  for (std::size_t i = 0; i < existing.rows.size(); ++i) {
    const std::size_t count = fields_of(existing.rows[i]).size();
    if (count == format.columns.size()) continue;
    errors.push_back({file, fmt::format("line {}", existing.row_lines[i]), fmt::format("has {} fields", count),
                      fmt::format("{}", format.columns.size()), ""});
  }
  return errors;
}

}  // namespace

ResultFile::ResultFile(const std::string& file, const ResultFormat& format)
    : file_(file), column_count_(format.columns.size()) {
  for (const std::string& key : format.key_columns) {
    const auto found = std::find(format.columns.begin(), format.columns.end(), key);
    LH_ASSERT(found != format.columns.end(), "key column {} is no column", key);
    key_indices_.push_back(static_cast<std::size_t>(found - format.columns.begin()));
  }
}

std::vector<std::string> ResultFile::key_of(const std::vector<std::string>& fields) const {
  std::vector<std::string> key;
  for (const std::size_t index : key_indices_) key.push_back(fields.at(index));
  return key;
}

Expected<ResultFile> ResultFile::open(const std::string& file, const ResultFormat& format, bool resume) {
  ResultFile result(file, format);
  std::error_code ignored;
  const bool there = fs::exists(file, ignored) && fs::file_size(file, ignored) > 0;
  if (there && !resume) {
    return tl::unexpected(Errors{{file, "", "is there already", "another file, or --resume to go on with it", ""}});
  }
  if (there) {
    const Expected<Existing> existing = read_existing(file);
    if (!existing) return tl::unexpected(existing.error());
    Errors errors = resume_faults(file, *existing, format);
    if (!errors.empty()) return tl::unexpected(std::move(errors));
    for (const std::string& row : existing->rows) result.keys_.insert(result.key_of(fields_of(row)));
    fs::resize_file(file, existing->whole_bytes, ignored);
  }
  result.out_.open(file, std::ios::binary | std::ios::app);
  if (!there) {
    for (const std::string& line : format.identity) result.out_ << "# " << line << '\n';
    for (const std::string& line : format.notes) result.out_ << "# " << line << '\n';
    result.out_ << fmt::format("{}", fmt::join(format.columns, ",")) << '\n';
  }
  result.out_.flush();
  if (!result.out_) return tl::unexpected(Errors{{file, "", "cannot be written", "", ""}});
  return result;
}

void ResultFile::append(const std::vector<std::string>& fields) {
  LH_ASSERT(fields.size() == column_count_, "{} fields for {} columns", fields.size(), column_count_);
  for (const std::string& field : fields) {
    LH_ASSERT(field.find_first_of(",\n") == std::string::npos, "field \"{}\" breaks the row", field);
  }
  out_ << fmt::format("{}", fmt::join(fields, ",")) << '\n';
  out_.flush();
  if (!out_) throw LimitError(fmt::format("{}: cannot be written any more: free space and --resume", file_));
  keys_.insert(key_of(fields));
}

}  // namespace longhaul
