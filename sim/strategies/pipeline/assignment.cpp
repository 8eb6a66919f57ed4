#include "sim/strategies/pipeline/assignment.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "sim/strategies/pipeline/replica_plan.h"
#include "sim/strategies/strategy.h"

namespace longhaul {
namespace {

void check_piece_json(const Json& piece, const std::string& file, const std::string& path, Errors& errors) {
  JsonReader reader(piece, file, path, errors);
  reader.required_integer("document", 0, std::numeric_limits<DocumentId>::max());
  reader.required_integer("first_token", 0, kMostTokens);
  reader.required_integer("tokens", 1, kMostTokens);
  reader.finish();
}

// Where a document's tokens stand so far.
struct Progress {
  std::int64_t tokens = 0;
  std::int64_t sequence = -1, chunk = -1;  // numbered through all replicas; of its last slice
};

// Takes the pieces one by one, in the order of the assignment; a reason where one cannot stand where it does.
class DocumentCheck {
 public:
  explicit DocumentCheck(const Batch& batch) : batch_(batch), documents_(batch.documents.size()) {}

  std::optional<std::string> take(const DocumentPiece& piece, std::int64_t sequence, std::int64_t chunk) {
    const auto at = static_cast<std::size_t>(piece.document);
    if (at >= documents_.size()) {
      return fmt::format("document {} is not in the batch of {}", piece.document, documents_.size());
    }
    Progress& progress = documents_[at];
    if (piece.first != progress.tokens) {
      return fmt::format("document {} goes on at token {}, after {} tokens", piece.document, piece.first,
                         progress.tokens);
    }
    if (piece.first > 0 && (sequence != progress.sequence || chunk != progress.chunk + 1)) {
      return fmt::format(
          "the slice of document {} at token {} is not in the chunk behind its last slice, of the same "
          "sequence",
          piece.document, piece.first);
    }
    if (piece.end() > batch_.documents[at]) {
      return fmt::format("document {} has {} tokens, not {}", piece.document, batch_.documents[at], piece.end());
    }
    progress = {piece.end(), sequence, chunk};
    return std::nullopt;
  }

  std::optional<std::string> complete() const {
    for (std::size_t i = 0; i < documents_.size(); ++i) {
      if (documents_[i].tokens == batch_.documents[i]) continue;
      return fmt::format("no chunk holds token {} of document {}", documents_[i].tokens, i);
    }
    return std::nullopt;
  }

 private:
  const Batch& batch_;
  std::vector<Progress> documents_;
};

// One replica's streams; `sequence` and `chunk` count through all replicas.
tl::expected<std::vector<std::vector<SlotSequence>>, std::string> read_streams(const Json& replica,
                                                                               DocumentCheck& documents,
                                                                               std::int64_t& sequence,
                                                                               std::int64_t& chunk) {
  std::vector<std::vector<SlotSequence>> streams;
  for (const Json& sequences : replica) {
    std::vector<SlotSequence>& slots = streams.emplace_back();
    for (const Json& chunks : sequences) {
      SlotSequence& slot = slots.emplace_back();
      for (const Json& pieces : chunks) {
        PipelineChunk& made = slot.emplace_back();
        for (const Json& json : pieces) {
          DocumentPiece piece;
          piece.document = json["document"].get<DocumentId>();
          piece.first = json["first_token"].get<std::int64_t>();
          piece.tokens = json["tokens"].get<std::int64_t>();
          if (auto fault = documents.take(piece, sequence, chunk)) return tl::unexpected(std::move(*fault));
          made.pieces.push_back(piece);
        }
        ++chunk;
      }
      ++sequence;
    }
  }
  return streams;
}

}  // namespace

void check_pipeline_assignment(const Json& assignment, const std::string& file, const std::string& path,
                               Errors& errors) {
  const auto each = [&](const Json& array, const std::string& at, const char* of, const auto& body) {
    if (array.is_array() && array.empty()) errors.push_back({file, at, "is empty", of, ""});
    for_each_element(array, file, at, of, errors, body);
  };
  each(assignment, path, "replicas", [&](const Json& replica, const std::string& of_replica) {
    each(replica, of_replica, "streams", [&](const Json& stream, const std::string& of_stream) {
      each(stream, of_stream, "sequences", [&](const Json& sequence, const std::string& of_sequence) {
        each(sequence, of_sequence, "chunks", [&](const Json& chunk, const std::string& of_chunk) {
          each(chunk, of_chunk, "pieces",
               [&](const Json& piece, const std::string& place) { check_piece_json(piece, file, place, errors); });
        });
      });
    });
  });
}

Applicable<PipelinePlan> assigned_pipeline(const Json& assignment, const Batch& batch, std::int64_t layers,
                                           const PipelineLayout& layout, const DppCostModel& cost) {
  std::string reason = pipeline_not_applicable(batch, layers, layout);
  if (!reason.empty()) return tl::unexpected(std::move(reason));
  if (assignment.size() != static_cast<std::size_t>(layout.dp)) {
    return tl::unexpected(
        fmt::format("the assignment is of {} replicas, the layout has dp = {}", assignment.size(), layout.dp));
  }
  PipelinePlan plan{layout, stage_layers(layers, layout.pp), {}};
  const StageCost stage_cost(cost, layers, layout);
  DocumentCheck documents(batch);
  std::int64_t sequence = 0, chunk = 0;
  for (std::size_t i = 0; i < assignment.size(); ++i) {
    auto streams = read_streams(assignment[i], documents, sequence, chunk);
    if (!streams) return tl::unexpected(fmt::format("the assignment of replica {}: {}", i, streams.error()));
    plan.replicas.push_back(assemble_replica(std::move(*streams), layout, plan.stage_layers, stage_cost));
  }
  if (const auto missing = documents.complete()) return tl::unexpected("the assignment: " + *missing);
  return plan;
}

Json pipeline_assignment_of(const PipelinePlan& plan) {
  Json assignment = Json::array();
  for (const ReplicaPlan& replica : plan.replicas) {
    Json streams = Json::array();
    for (const PipelineStream& stream : replica.streams) {
      Json sequences = Json::array();
      auto at = static_cast<std::size_t>(stream.first_chunk);
      for (const std::int32_t slices : stream.slices) {
        Json chunks = Json::array();
        for (std::int32_t slice = 0; slice < slices; ++slice) {
          Json pieces = Json::array();
          for (const DocumentPiece& piece : replica.chunks[at++].pieces) {
            pieces.push_back({{"document", piece.document}, {"first_token", piece.first}, {"tokens", piece.tokens}});
          }
          chunks.push_back(std::move(pieces));
        }
        sequences.push_back(std::move(chunks));
      }
      streams.push_back(std::move(sequences));
    }
    assignment.push_back(std::move(streams));
  }
  return assignment;
}

}  // namespace longhaul
