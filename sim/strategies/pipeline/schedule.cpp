#include "sim/strategies/pipeline/schedule.h"

#include <algorithm>
#include <set>

#include "sim/core/invariant.h"
#include "sim/strategies/pipeline/stage_weights.h"
#include "sim/strategies/step/head_parallel.h"
#include "sim/strategies/step/step.h"

namespace longhaul {
namespace {

// Which chunks a chunk's slices look back to, and whose K and V gradients appear in its backward pass.
struct ChunkContext {
  std::vector<std::int32_t> earlier;        // ascending
  std::vector<std::int32_t> first_touched;  // in backward order of the stream
  bool sliced = false;                      // holds a slice of a document that other chunks hold too
};

std::vector<ChunkContext> chunk_contexts(const ReplicaPlan& replica) {
  std::vector<ChunkContext> contexts(replica.chunks.size());
  for (std::size_t c = 0; c < replica.chunks.size(); ++c) {
    std::set<std::int32_t> earlier;
    for (const DocumentPiece& piece : replica.chunks[c].pieces) {
      contexts[c].sliced |= piece.slices > 1;
      for (std::int32_t slice = 0; slice < piece.slice; ++slice) earlier.insert(piece.first_chunk + slice);
    }
    contexts[c].earlier.assign(earlier.begin(), earlier.end());
  }
  std::vector<bool> touched(replica.chunks.size(), false);
  for (const PipelineStream& stream : replica.streams) {
    for (const std::int32_t chunk : backward_order(stream)) {
      ChunkContext& context = contexts[static_cast<std::size_t>(chunk)];
      std::vector<std::int32_t> uses = context.earlier;
      uses.push_back(chunk);
      for (const std::int32_t used : uses) {
        if (touched[static_cast<std::size_t>(used)]) continue;
        touched[static_cast<std::size_t>(used)] = true;
        context.first_touched.push_back(used);
      }
    }
  }
  return contexts;
}

// Rows of a chunk: its pieces in order, then padding to a multiple of sp.
std::vector<RowRun> chunk_runs(const PipelineChunk& chunk) {
  std::vector<RowRun> runs;
  for (const DocumentPiece& piece : chunk.pieces) {
    runs.push_back({piece.document, TokenView::kClean, piece.first, piece.tokens});
  }
  runs.push_back({-1, TokenView::kClean, 0, chunk.rows - chunk.tokens});
  return runs;
}

std::vector<RowRun> cut_runs(const std::vector<RowRun>& runs, std::int64_t begin, std::int64_t end) {
  std::vector<RowRun> cut;
  std::int64_t row = 0;
  for (const RowRun& run : runs) {
    const std::int64_t from = std::max(begin, row);
    const std::int64_t to = std::min(end, row + run.count);
    if (from < to) cut.push_back({run.document, run.view, run.document < 0 ? 0 : run.first + from - row, to - from});
    row += run.count;
  }
  return cut;
}

// Row of a chunk at which its piece of `document` begins.
std::int64_t piece_row(const PipelineChunk& chunk, DocumentId document) {
  std::int64_t row = 0;
  for (const DocumentPiece& piece : chunk.pieces) {
    if (piece.document == document) return row;
    row += piece.tokens;
  }
  LH_ASSERT(false, "no piece of document {} in the chunk of its slice", document);
  return -1;
}

// Each piece against its document's earlier slices (full) and itself (causal). Operands: earlier chunks, then its own.
PieceListPtr chunk_pieces(const ReplicaPlan& replica, std::size_t chunk, const ChunkContext& context) {
  std::vector<Piece> pieces;
  std::int64_t row = 0;
  for (const DocumentPiece& part : replica.chunks[chunk].pieces) {
    Piece piece;
    piece.q_row = row;
    piece.q_count = part.tokens;
    piece.q_token = part.first;
    for (std::int32_t slice = 0; slice < part.slice; ++slice) {
      const std::int32_t holder = part.first_chunk + slice;
      const PipelineChunk& earlier = replica.chunks[static_cast<std::size_t>(holder)];
      const auto held = std::find_if(earlier.pieces.begin(), earlier.pieces.end(),
                                     [&](const DocumentPiece& p) { return p.document == part.document; });
      LH_ASSERT(held != earlier.pieces.end(), "document {} has no slice in chunk {}", part.document, holder);
      piece.k_row = piece_row(earlier, part.document);
      piece.k_count = held->tokens;
      piece.k_token = held->first;
      piece.rule = MaskRule::kFull;
      const auto place = std::lower_bound(context.earlier.begin(), context.earlier.end(), holder);
      piece.operand = static_cast<std::int16_t>(place - context.earlier.begin());
      pieces.push_back(piece);
    }
    piece.k_row = row;
    piece.k_count = part.tokens;
    piece.k_token = part.first;
    piece.rule = MaskRule::kCausal;
    piece.operand = static_cast<std::int16_t>(context.earlier.size());
    pieces.push_back(piece);
    row += part.tokens;
  }
  return make_piece_list(std::move(pieces));
}

// The order in which two neighbouring stages use their two edges. The earlier stage sends F(k) after computing it and
// receives B(i) before computing it, so its own list is the order; the later stage must follow it, which means posting
// the receive of its next input before it sends a gradient back. One common order keeps NCCL free of deadlock.
class EdgeOrder {
 public:
  explicit EdgeOrder(std::vector<PipelineOp> earlier_stage) : order_(std::move(earlier_stage)) {
    place_[0].resize(order_.size());  // each chunk stands twice: fewer than the ops
    place_[1].resize(order_.size());
    for (std::size_t i = 0; i < order_.size(); ++i) place(order_[i]) = i;
  }

  // Emits what comes up to and including the edge of `upto`; nothing if it was emitted already.
  template <class Emit>
  void advance(const PipelineOp& upto, const Emit& emit) {
    for (const std::size_t end = place(upto) + 1; next_ < end; ++next_) emit(order_[next_]);
  }

 private:
  std::size_t& place(const PipelineOp& op) {
    std::vector<std::size_t>& of_pass = place_[op.pass == PipelinePass::kForward ? 0 : 1];
    LH_ASSERT(static_cast<std::size_t>(op.chunk) < of_pass.size(), "chunk {} is not one of the stage before", op.chunk);
    return of_pass[static_cast<std::size_t>(op.chunk)];
  }

  std::vector<PipelineOp> order_;
  std::vector<std::size_t> place_[2];  // by pass, chunk
  std::size_t next_ = 0;
};

class PipelineScheduleBuilder {
 public:
  PipelineScheduleBuilder(const StrategyRequest& request, const PipelinePlan& plan)
      : request_(request), plan_(plan), scheme_(plan.layout.sp, has_slices(plan)) {}

  std::shared_ptr<const Schedule> build() {
    builder_.schedule.model = request_.model;
    builder_.schedule.batch = request_.batch;
    const StepBuilder step(builder_, request_.model, request_.batch->objective, step_options(), scheme_);
    add_ranks(step);
    add_groups(step);
    for (int replica = 0; replica < plan_.layout.dp; ++replica) add_shapes(step, replica);
    return std::make_shared<const Schedule>(std::move(builder_.schedule));
  }

 private:
  static bool has_slices(const PipelinePlan& plan) {
    for (const ReplicaPlan& replica : plan.replicas) {
      for (const PipelineStream& stream : replica.streams) {
        if (stream.n_split() > 1) return true;
      }
    }
    return false;
  }

  StepOptions step_options() const {
    StepOptions options;
    options.training = request_.training;
    const bool zero3 = request_.training.zero_stage == 3;
    options.zero_ranks = zero3 ? plan_.layout.sp : plan_.layout.sp * plan_.layout.dp;
    options.replicas = zero3 ? plan_.layout.dp : 1;
    options.chunks = 1;
    for (const ReplicaPlan& replica : plan_.replicas) {
      options.chunks = std::max(options.chunks, static_cast<int>(replica.chunks.size()));
    }
    options.context = has_slices(plan_);
    options.pipeline = true;
    options.gather_once = gathers_once(request_, plan_.stage_layers);
    return options;
  }

  // Members of one stage on one node do the same thing at the same time, but each sends over its own edge: one may
  // stand for the others only where their edges share no link, that is where every GPU has a NIC of its own.
  bool foldable() const {
    return request_.cluster != nullptr &&
           request_.cluster->topology().nics_per_node >= request_.cluster->topology().gpus_per_node;
  }

  int rank_of(int replica, int stage, int member) const {
    return (replica * plan_.layout.pp + stage) * plan_.layout.sp + member;
  }
  RankInfo& info(int rank) { return builder_.schedule.ranks[static_cast<std::size_t>(rank)]; }

  // The program of every rank of one stage of one replica.
  Program program(const StepBuilder& step, int replica, int stage, int first_layer, int layers) const {
    const ReplicaPlan& plan = plan_.replicas[static_cast<std::size_t>(replica)];
    const std::vector<ChunkContext> contexts = chunk_contexts(plan);
    const std::vector<PipelineOp>& ops = plan.order.stages[static_cast<std::size_t>(stage)];
    const bool first = stage == 0;
    const bool last = stage + 1 == plan_.layout.pp;
    const StepSegments& segments = step.segments();
    const auto last_of = [&](PipelinePass pass) {
      std::int32_t chunk = -1;
      for (const PipelineOp& op : ops) chunk = op.pass == pass ? op.chunk : chunk;
      return chunk;
    };
    const std::int32_t last_forward = last_of(PipelinePass::kForward);
    const std::int32_t last_backward = last_of(PipelinePass::kBackward);
    Program program;
    program.resident = step.resident(first_layer, layers, first, last);
    step.append_prepare(program, first_layer, layers, first, last);
    EdgeOrder before(first ? std::vector<PipelineOp>{} : plan.order.stages[static_cast<std::size_t>(stage - 1)]);
    const auto exchange_before = [&](const PipelineOp& upto) {  // edges with the stage before, in the pair's order
      before.advance(upto, [&](const PipelineOp& edge) {
        const bool forward = edge.pass == PipelinePass::kForward;
        step.append_edge(program, forward ? segments.receive_forward : segments.send_backward, edge.chunk, first_layer);
      });
    };
    for (const PipelineOp& op : ops) {
      const bool context = contexts[static_cast<std::size_t>(op.chunk)].sliced;
      if (op.pass == PipelinePass::kForward) {
        if (first)
          step.append_embedding(program, op.chunk);
        else
          exchange_before(op);
        step.append_forward(program, op.chunk, first_layer, layers, context);
        if (last)
          step.append_head(program, op.chunk, first_layer + layers, op.chunk == last_forward);
        else
          step.append_edge(program, segments.send_forward, op.chunk, first_layer + layers);
      } else {
        if (!last) step.append_edge(program, segments.receive_backward, op.chunk, first_layer);
        step.append_backward(program, op.chunk, first_layer, layers, context, op.chunk == last_backward);
        if (first)
          step.append_embedding_backward(program, op.chunk, op.chunk == last_backward);
        else
          exchange_before(op);
      }
    }
    step.append_optimizer(program, first_layer, layers, first, last);
    return program;
  }

  void add_ranks(const StepBuilder& step) {
    builder_.schedule.ranks.resize(static_cast<std::size_t>(request_.ranks));
    for (int replica = 0; replica < plan_.layout.dp; ++replica) {
      int first_layer = 0;
      for (int stage = 0; stage < plan_.layout.pp; ++stage) {
        const int layers = static_cast<int>(plan_.stage_layers[static_cast<std::size_t>(stage)]);
        const ProgramId id = builder_.add_program(program(step, replica, stage, first_layer, layers));
        first_layer += layers;
        for (int member = 0; member < plan_.layout.sp; ++member) {
          const int rank = rank_of(replica, stage, member);
          info(rank).program = id;
          info(rank).groups.assign(builder_.schedule.roles.size(), -1);
          info(rank).shapes.assign(plan_.replicas[static_cast<std::size_t>(replica)].chunks.size(), -1);
          const int node_begin = rank / request_.gpus_per_node * request_.gpus_per_node;
          info(rank).representative = foldable() ? std::max(rank_of(replica, stage, 0), node_begin) : rank;
        }
      }
    }
  }

  void join(GroupRole role, const std::vector<std::int32_t>& members) {
    const GroupId group = builder_.add_group(members);
    for (const std::int32_t rank : members) info(rank).groups[static_cast<std::size_t>(role)] = group;
  }

  void add_edge(GroupRole sender_role, int sender, GroupRole receiver_role, int receiver) {
    const GroupId group = builder_.add_group({sender, receiver});
    info(sender).groups[static_cast<std::size_t>(sender_role)] = group;
    info(receiver).groups[static_cast<std::size_t>(receiver_role)] = group;
  }

  void add_groups(const StepBuilder& step) {
    const PipelineLayout& layout = plan_.layout;
    const bool zero3 = request_.training.zero_stage == 3;
    for (int stage = 0; stage < layout.pp; ++stage) {
      std::vector<std::int32_t> whole_stage;
      for (int replica = 0; replica < layout.dp; ++replica) {
        std::vector<std::int32_t> members;
        for (int member = 0; member < layout.sp; ++member) members.push_back(rank_of(replica, stage, member));
        whole_stage.insert(whole_stage.end(), members.begin(), members.end());
        join(scheme_.role(), members);
        if (zero3) join(step.zero_role(), members);
        if (stage + 1 == layout.pp) continue;
        for (int member = 0; member < layout.sp; ++member) {
          const int here = rank_of(replica, stage, member);
          const int next = rank_of(replica, stage + 1, member);
          add_edge(step.edges().forward_out, here, step.edges().forward_in, next);
          add_edge(step.edges().backward_out, next, step.edges().backward_in, here);
        }
      }
      if (!zero3) join(step.zero_role(), whole_stage);
      if (step.replica_role() < 0) continue;
      for (int member = 0; member < layout.sp; ++member) {
        std::vector<std::int32_t> same;
        for (int replica = 0; replica < layout.dp; ++replica) same.push_back(rank_of(replica, stage, member));
        join(step.replica_role(), same);
      }
    }
  }

  // One shape set a (chunk, member): the stages of a replica share it.
  void add_shapes(const StepBuilder& step, int replica) {
    const ReplicaPlan& plan = plan_.replicas[static_cast<std::size_t>(replica)];
    const std::vector<ChunkContext> contexts = chunk_contexts(plan);
    for (std::size_t chunk = 0; chunk < plan.chunks.size(); ++chunk) {
      const std::vector<RowRun> runs = chunk_runs(plan.chunks[chunk]);
      const std::int64_t local_rows = plan.chunks[chunk].rows / plan_.layout.sp;
      HeadParallelShape shared;
      shared.group_rows = make_row_map(runs);
      shared.pieces = chunk_pieces(plan, chunk, contexts[chunk]);
      shared.context_chunks = contexts[chunk].earlier;
      shared.first_touched = contexts[chunk].first_touched;
      for (int member = 0; member < plan_.layout.sp; ++member) {
        shared.member_rows.push_back(make_row_list({{member * local_rows, local_rows}}));
      }
      scheme_.prepare(shared, local_rows);
      for (int member = 0; member < plan_.layout.sp; ++member) {
        ShapeSet shape = builder_.empty_shape();
        step.set_rows(shape, make_row_map(cut_runs(runs, member * local_rows, (member + 1) * local_rows)));
        scheme_.set_shape(shape, static_cast<std::int32_t>(chunk), local_rows, shared);
        const ShapeId id = builder_.add_shape(std::move(shape));
        for (int stage = 0; stage < plan_.layout.pp; ++stage) {
          info(rank_of(replica, stage, member)).shapes[chunk] = id;
        }
      }
    }
  }

  const StrategyRequest& request_;
  const PipelinePlan& plan_;
  ScheduleBuilder builder_;
  HeadParallelScheme scheme_;
};

}  // namespace

std::shared_ptr<const Schedule> pipeline_schedule(const StrategyRequest& request, const PipelinePlan& plan) {
  return PipelineScheduleBuilder(request, plan).build();
}

}  // namespace longhaul
