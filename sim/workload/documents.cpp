#include "sim/workload/documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "sim/core/data_files.h"
#include "sim/core/invariant.h"
#include "sim/core/json.h"
#include "sim/core/printable.h"

namespace longhaul {
namespace {

constexpr std::int64_t kMaxFileTokens = std::int64_t{1} << 30;  // of one document before it is cut

// Appends one document to the open sequence of a batch.
void add_document(Batch& batch, std::int64_t tokens) {
  Sequence& sequence = batch.sequences.back();
  sequence.documents.push_back(static_cast<DocumentId>(batch.documents.size()));
  sequence.tokens += tokens;
  batch.documents.push_back(tokens);
}

Batch empty_batch(const Objective& objective, std::int64_t context_tokens) {
  Batch batch;
  batch.objective = objective;
  batch.context_tokens = context_tokens;
  return batch;
}

std::optional<std::int64_t> as_length(const Json& value, std::int64_t high) {
  if (!value.is_number_integer() || value < 1 || value > high) return std::nullopt;
  return value.get<std::int64_t>();
}

std::vector<std::int64_t> read_list(const Json& list, std::int64_t high, const std::string& file,
                                    const std::string& path, Errors& errors) {
  const std::size_t errors_before = errors.size();
  std::vector<std::int64_t> lengths;
  if (!list.is_array() || list.empty()) {
    errors.push_back({file, path, fmt::format("is {}", describe(list)), "a list of document lengths", ""});
    return lengths;
  }
  for (std::size_t i = 0; i < list.size() && errors.size() < errors_before + kMaxFaults; ++i) {
    const std::optional<std::int64_t> tokens = as_length(list[i], high);
    if (tokens) {
      lengths.push_back(*tokens);
    } else {
      errors.push_back({file, fmt::format("{}/{}", path, i), fmt::format("is {}", describe(list[i])),
                        fmt::format("a document length from 1 to {}", high), ""});
    }
  }
  return lengths;
}

// One length a line; empty lines and lines that start with # are skipped.
std::vector<std::int64_t> read_lines(std::string_view text, const std::string& file, Errors& errors) {
  const std::size_t errors_before = errors.size();
  std::vector<std::int64_t> lengths;
  std::size_t number = 0;
  while (!text.empty() && errors.size() < errors_before + kMaxFaults) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t')) line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    std::int64_t tokens = 0;
    const auto [stop, failure] = std::from_chars(line.data(), line.data() + line.size(), tokens);
    if (failure == std::errc() && stop == line.data() + line.size() && tokens >= 1 && tokens <= kMaxFileTokens) {
      lengths.push_back(tokens);
    } else {
      errors.push_back({file, fmt::format("line {}", number), fmt::format("is \"{}\"", echoed(line)),
                        fmt::format("a document length from 1 to {}", kMaxFileTokens), ""});
    }
  }
  return lengths;
}

void check_step_tokens(JsonReader& reader, std::string_view key, std::int64_t sequences, std::int64_t context) {
  if (sequences <= kMaxStepTokens / context) return;
  reader.add_error(key, fmt::format("{} sequences of {} tokens", sequences, context),
                   fmt::format("at most {} tokens a step", kMaxStepTokens));
}

void read_sampled(JsonReader& reader, const Json& reference, DocumentSource& source) {
  source.lengths = find_lengths(reference, reader.file(), reader.child_path("lengths"), reader.errors());
  source.shipped_lengths = reference.is_string() && !is_data_path(DataKind::kLengths, reference.get<std::string>());
  const auto context = reader.required_integer("context_tokens", 1, kMaxContextTokens);
  const auto sequences = reader.required_integer("sequences", 1, kMaxSequences);
  source.context_tokens = context.value_or(1);
  source.sequences = sequences.value_or(1);
  if (context && sequences) check_step_tokens(reader, "sequences", *sequences, *context);
  source.steps = reader.integer("steps", 1, kMaxSteps).value_or(1);
}

// Explicit documents and files hold one batch: more steps would train the same documents again.
void refuse_steps(JsonReader& reader) {
  if (reader.integer("steps", 1, kMaxSteps).value_or(1) > 1) {
    reader.add_error("steps", "is more than 1", "1; only documents sampled from \"lengths\" differ between steps");
  }
}

void read_explicit(JsonReader& reader, const Json& list, DocumentSource& source) {
  const std::string path = reader.child_path("explicit");
  const std::size_t errors_before = reader.errors().size();
  if (!list.is_array() || list.empty()) {
    reader.add_error("explicit", fmt::format("is {}", describe(list)), "one list of document lengths a sequence");
    return;
  }
  const auto context = reader.integer("context_tokens", 1, kMaxContextTokens);
  const std::int64_t limit = context.value_or(kMaxContextTokens);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < list.size() && reader.errors().size() < errors_before + kMaxFaults; ++i) {
    const std::string place = fmt::format("{}/{}", path, i);
    source.explicit_sequences.push_back(read_list(list[i], limit, reader.file(), place, reader.errors()));
    std::int64_t tokens = 0;
    for (const std::int64_t length : source.explicit_sequences.back()) tokens += length;
    if (tokens > limit) {
      reader.errors().push_back(
          {reader.file(), place, fmt::format("holds {} tokens", tokens), fmt::format("at most {}", limit), ""});
    }
    source.context_tokens = std::max(source.context_tokens, tokens);
    total += tokens;
  }
  if (total > kMaxStepTokens) {
    reader.add_error("explicit", fmt::format("holds {} tokens", total),
                     fmt::format("at most {} tokens a step", kMaxStepTokens));
  }
  source.context_tokens = std::max(source.context_tokens, context.value_or(1));
  source.sequences = static_cast<std::int64_t>(list.size());
  const auto sequences = reader.integer("sequences", 1, kMaxSequences);
  if (sequences && *sequences != source.sequences) {
    reader.add_error("sequences", fmt::format("is {}", *sequences),
                     fmt::format("{}, the number of explicit sequences, or nothing", source.sequences));
  }
  refuse_steps(reader);
}

void read_file(JsonReader& reader, DocumentSource& source) {
  const auto name = reader.string("file");
  const auto context = reader.required_integer("context_tokens", 1, kMaxContextTokens);
  const auto wanted = reader.integer("sequences", 1, kMaxSequences);
  refuse_steps(reader);
  if (!name || !context) return;
  source.context_tokens = *context;
  const std::size_t errors_before = reader.errors().size();
  const std::string lengths_file = relative_to_file(*name, reader.file());
  source.file_lengths = read_document_lengths(lengths_file, reader.errors());
  set_named_at(reader.errors(), errors_before, reader.file(), reader.child_path("file"));
  if (reader.errors().size() != errors_before) return;
  const Batch whole = packed_batch(source.file_lengths, {}, *context, std::numeric_limits<std::int64_t>::max());
  const auto filled = static_cast<std::int64_t>(whole.sequences.size());
  if (wanted && *wanted > filled) {
    reader.add_error("sequences", fmt::format("is {}", *wanted),
                     fmt::format("at most {}, which the documents of {} fill", filled, lengths_file));
  }
  source.sequences = wanted.value_or(filled);
  check_step_tokens(reader, "file", source.sequences, *context);
}

}  // namespace

std::vector<std::int64_t> read_document_lengths(const std::string& file, Errors& errors) {
  const Expected<std::string> contents = read_input_file(file, "a file of document lengths");
  if (!contents) {
    append(errors, contents.error());
    return {};
  }
  const std::string& text = *contents;
  const std::size_t errors_before = errors.size();
  std::vector<std::int64_t> lengths;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && (text[first] == '[' || text[first] == '{')) {
    Expected<Json> list = parse_json(text, file);
    if (list) {
      lengths = read_list(*list, kMaxFileTokens, file, "", errors);
    } else {
      append(errors, list.error());
    }
  } else {
    lengths = read_lines(text, file, errors);
  }
  if (lengths.empty() && errors.size() == errors_before) {
    errors.push_back({file, "", "holds no lengths", "one document length a line, or a JSON list", ""});
  }
  return lengths;
}

const std::vector<std::string>& documents_keys() {
  static const std::vector<std::string> keys = {"context_tokens", "explicit",  "file", "lengths",
                                                "seed",           "sequences", "steps"};
  return keys;
}

std::optional<DocumentSource> read_documents(const Json& value, const std::string& file, const std::string& path,
                                             Errors& errors) {
  const std::size_t errors_before = errors.size();
  JsonReader reader(value, file, path, errors);
  for (const std::string& key : documents_keys()) reader.find(key);
  DocumentSource source;
  source.seed = reader.integer("seed", 0, std::numeric_limits<std::int64_t>::max()).value_or(1);
  const Json* lengths = reader.find("lengths");
  const Json* list = reader.find("explicit");
  const bool has_file = reader.has("file");
  const int sources = (lengths != nullptr) + (list != nullptr) + (has_file ? 1 : 0);
  if (value.is_object() && sources != 1) {
    errors.push_back({file, path, fmt::format("has {} of \"lengths\", \"explicit\" and \"file\"", sources),
                      "exactly one of them", ""});
  } else if (lengths != nullptr) {
    read_sampled(reader, *lengths, source);
  } else if (list != nullptr) {
    read_explicit(reader, *list, source);
  } else if (has_file) {
    read_file(reader, source);
  }
  reader.finish();
  if (errors.size() != errors_before) return std::nullopt;
  return source;
}

Batch sampled_batch(const LengthTable& lengths, const Objective& objective, std::int64_t context_tokens,
                    std::int64_t sequences, Rng& rng) {
  Batch batch = empty_batch(objective, context_tokens);
  batch.sequences.reserve(static_cast<std::size_t>(sequences));
  for (std::int64_t i = 0; i < sequences; ++i) {
    batch.sequences.emplace_back();
    while (batch.sequences.back().tokens < context_tokens) {
      add_document(batch, std::min(lengths.sample(rng), context_tokens - batch.sequences.back().tokens));
    }
  }
  return batch;
}

Batch packed_batch(const std::vector<std::int64_t>& lengths, const Objective& objective, std::int64_t context_tokens,
                   std::int64_t sequences) {
  Batch batch = empty_batch(objective, context_tokens);
  for (const std::int64_t tokens : lengths) {
    if (batch.sequences.empty() || batch.sequences.back().tokens == context_tokens) {
      if (static_cast<std::int64_t>(batch.sequences.size()) == sequences) break;
      batch.sequences.emplace_back();
    }
    add_document(batch, std::min(tokens, context_tokens - batch.sequences.back().tokens));
  }
  return batch;
}

Batch explicit_batch(const std::vector<std::vector<std::int64_t>>& sequences, const Objective& objective) {
  Batch batch = empty_batch(objective, 0);
  for (const std::vector<std::int64_t>& documents : sequences) {
    batch.sequences.emplace_back();
    for (const std::int64_t tokens : documents) add_document(batch, tokens);
    batch.context_tokens = std::max(batch.context_tokens, batch.sequences.back().tokens);
  }
  return batch;
}

Batch make_batch(const DocumentSource& source, const Objective& objective, std::int64_t step) {
  LH_ASSERT(step >= 0 && step < source.steps, "step {} of {}", step, source.steps);
  if (source.lengths) {
    Rng rng(static_cast<std::uint64_t>(source.seed), fmt::format("documents/{}", step));
    return sampled_batch(*source.lengths, objective, source.context_tokens, source.sequences, rng);
  }
  if (!source.explicit_sequences.empty()) {
    Batch batch = explicit_batch(source.explicit_sequences, objective);
    batch.context_tokens = source.context_tokens;
    return batch;
  }
  return packed_batch(source.file_lengths, objective, source.context_tokens, source.sequences);
}

}  // namespace longhaul
