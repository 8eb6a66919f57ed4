// The files of one run, all or none: prepared in a folder beside the target and moved in at the end.
//
// Invariant: before commit() the target is as it was; after a commit() that throws, too. Folders above the target that
// had to be made are removed again unless the run commits. Ignores files of earlier runs under other names: they stay.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace longhaul {

class OutputFolder {
 public:
  // Throws LimitError, with the remedy, where the target cannot be a folder of new files.
  explicit OutputFolder(const std::string& target);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  // `name` is relative ("traces/a.json"), each one once. Throws LimitError if it cannot be written.
  void add(const std::string& name, const std::string& text);
  // Moves everything into the target, replacing files of the same names. Throws LimitError.
  void commit();

 private:
  void make(const std::filesystem::path& folder);  // with those above it; remembers what is new
  void move_all(std::vector<std::filesystem::path>& moved);

  std::filesystem::path target_, staging_, replaced_;
  std::vector<std::filesystem::path> names_;
  std::vector<std::filesystem::path> made_;  // outermost first
  bool committed_ = false;
};

// Finds out before a long run whether its files can be written; leaves nothing.
void probe_output_folder(const std::string& target);

// `folder`/`name`.json, or the first of `name`-2, `name`-3, ... that no file has.
std::string unused_json_file(const std::string& folder, const std::string& name);

// Letters, digits, '-', '.' and '_' of `text`; every other byte is '_', and so is a leading '.'. Never empty, at most
// 180 bytes, so that endings fit into a file name.
std::string plain_file_name(const std::string& text);

// plain_file_name of each, in order; one that is taken by an earlier one gets -2, -3, ... So equal rows in equal order
// give equal names.
std::vector<std::string> unique_file_names(const std::vector<std::string>& texts);

}  // namespace longhaul
