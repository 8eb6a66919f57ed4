#include "sim/strategies/pipeline/plan_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace longhaul {
namespace {

using Json = nlohmann::ordered_json;

const char* kind_name(ChunkKind kind) {
  switch (kind) {
    case ChunkKind::kWhole:
      return "whole";
    case ChunkKind::kSplit:
      return "split";
    case ChunkKind::kHybrid:
      return "hybrid";
  }
  return "";
}

Json chunk_json(const PipelineChunk& chunk, std::int32_t index, std::int64_t edge_bytes) {
  Json pieces = Json::array();
  for (const DocumentPiece& piece : chunk.pieces) {
    pieces.push_back({{"document", piece.document},
                      {"first", piece.first},
                      {"tokens", piece.tokens},
                      {"slice", piece.slice},
                      {"slices", piece.slices},
                      {"first_chunk", piece.first_chunk}});
  }
  return {{"chunk", index},           {"kind", kind_name(chunk.kind)}, {"tokens", chunk.tokens},
          {"rows", chunk.rows},       {"pairs", chunk.pairs()},        {"modelled_ms", chunk.seconds * 1e3},
          {"edge_bytes", edge_bytes}, {"pieces", std::move(pieces)}};
}

Json stream_json(const PipelineStream& stream, const ReplicaPlan& replica, const PipelineLayout& layout,
                 const ModelShape& model) {
  Json warm_up = Json::array();
  for (std::int32_t stage = 0; stage < layout.pp; ++stage) {
    warm_up.push_back(warm_up_forwards(layout.pp, stage, stream.chunks(), stream.n_split()));
  }
  Json chunks = Json::array();
  for (std::int32_t i = stream.first_chunk; i < stream.first_chunk + stream.chunks(); ++i) {
    const PipelineChunk& chunk = replica.chunks[static_cast<std::size_t>(i)];
    chunks.push_back(chunk_json(chunk, i, 2 * model.hidden * (chunk.rows / layout.sp)));
  }
  return {{"n_split", stream.n_split()},
          {"slices", stream.slices},
          {"warm_up", std::move(warm_up)},
          {"chunks", std::move(chunks)}};
}

Json order_json(const PipelineOrder& order) {
  Json stages = Json::array();
  for (const std::vector<PipelineOp>& ops : order.stages) {
    Json names = Json::array();
    for (const PipelineOp& op : ops) {
      names.push_back(fmt::format("{}{}", op.pass == PipelinePass::kForward ? 'F' : 'B', op.chunk));
    }
    stages.push_back(std::move(names));
  }
  return stages;
}

Json replica_json(const ReplicaPlan& replica, const PipelineLayout& layout, const ModelShape& model) {
  std::int64_t tokens = 0;
  std::int64_t rows = 0;
  std::int64_t pairs = 0;
  for (const PipelineChunk& chunk : replica.chunks) {
    tokens += chunk.tokens;
    rows += chunk.rows;
    pairs += chunk.pairs();
  }
  Json json = {{"tokens", tokens}, {"rows", rows}, {"pairs", pairs}, {"modelled_ms", replica.modelled_seconds * 1e3}};
  if (replica.mesh_slices > 0) {
    json["mesh_slices"] = replica.mesh_slices;
    json["token_cap"] = replica.token_cap;
    json["window_fits"] = replica.window_fits;
  }
  Json streams = Json::array();
  for (const PipelineStream& stream : replica.streams) streams.push_back(stream_json(stream, replica, layout, model));
  json["streams"] = std::move(streams);
  json["order"] = order_json(replica.order);
  return json;
}

}  // namespace

Json pipeline_plan_json(const PipelinePlan& plan, const ModelShape& model) {
  Json replicas = Json::array();
  for (const ReplicaPlan& replica : plan.replicas) replicas.push_back(replica_json(replica, plan.layout, model));
  return {{"dp", plan.layout.dp},
          {"pp", plan.layout.pp},
          {"sp", plan.layout.sp},
          {"stage_layers", plan.stage_layers},
          {"replicas", std::move(replicas)}};
}

}  // namespace longhaul
