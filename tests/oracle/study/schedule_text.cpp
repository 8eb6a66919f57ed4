#include "tests/oracle/study/schedule_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace longhaul::oracle {
namespace {

template <class List, class Text>
std::string text_of(const List& list, const Text& text) {
  std::string joined;
  for (const auto& item : list) joined += text(item) + ";";
  return "{" + joined + "}";
}

std::string text(const TensorRef& of) {
  const auto& [kind, layer_offset, has_layer, has_chunk, instance, chunks] = of;
  return fmt::format("t {} {} {} {} {} {}", kind, layer_offset, has_layer, has_chunk, int{instance}, chunks);
}

std::string text(const View& of) {
  const auto& [tensor, access, rows, column_begin, columns, flat_begin, flat_rows] = of;
  return fmt::format("v ({}) {} {} {} {} {} {}", text(tensor), static_cast<int>(access), rows, column_begin, columns,
                     flat_begin, flat_rows);
}

std::string text(const KeyValueOperand& of) {
  const auto& [key, value, key_gradient, value_gradient, chunks] = of;
  return fmt::format("kv {} {} {} {} {}", text(key), text(value), text(key_gradient), text(value_gradient), chunks);
}

std::string text(const CollectivePart& of) {
  const auto& [send, receive, exchange] = of;
  return fmt::format("part {} {} {}", text(send), text(receive), exchange);
}

std::string refs(const std::vector<TensorRef>& list) {
  return text_of(list, [](const TensorRef& ref) { return text(ref); });
}

std::string text(const Op& of) {
  const auto& [kind, pass, function, stream, guard, eager, stall, label, waits, record, acquire, release, operands,
               transpose_a, transpose_b, q, o, lse, q_gradient, o_gradient, key_values, pieces, q_heads, kv_heads,
               head_dim, head_role, collective, role, parts, pipeline_edge] = of;
  std::string line = fmt::format("op {} {} {} {} {} {} {} {} waits {} record {}", static_cast<int>(kind),
                                 static_cast<int>(pass), static_cast<int>(function), int{stream},
                                 static_cast<int>(guard), static_cast<int>(eager), static_cast<int>(stall), label,
                                 text_of(waits, [](EventSlot slot) { return std::to_string(slot); }), int{record});
  line += fmt::format(" acquire {} release {} operands {} {} {}", refs(acquire), refs(release),
                      text_of(operands, [](const View& view) { return text(view); }), transpose_a, transpose_b);
  line += fmt::format(" q {} o {} lse {} dq {} do {} kv {}", text(q), text(o), text(lse), text(q_gradient),
                      text(o_gradient), text_of(key_values, [](const KeyValueOperand& kv) { return text(kv); }));
  line += fmt::format(" pieces {} heads {} {} {} {} collective {} {} parts {} edge {}", pieces, q_heads, kv_heads,
                      head_dim, int{head_role}, static_cast<int>(collective), int{role},
                      text_of(parts, [](const CollectivePart& part) { return text(part); }), pipeline_edge);
  return line;
}

std::string text(const Piece& of) {
  const auto& [q_row, q_count, q_token, k_row, k_count, k_token, q_run, q_stride, k_run, k_stride, block, pairs,
               operand, rule] = of;
  return fmt::format("piece {} {} {} {} {} {} {} {} {} {} {} {} {} {}", q_row, q_count, q_token, k_row, k_count,
                     k_token, q_run, q_stride, k_run, k_stride, block, pairs, operand, static_cast<int>(rule));
}

std::string text(const RowListPtr& list) {
  if (list == nullptr) return "none";
  return fmt::format("{}{}", list->rows, text_of(list->spans, [](const RowSpan& span) {
                       return fmt::format("{}+{}", span.begin, span.count);
                     }));
}

std::string text(const RowMapPtr& map) {
  if (map == nullptr) return "none";
  const auto& [runs, rows, tokens] = *map;
  return fmt::format("{} {} {}", rows, tokens, text_of(runs, [](const RowRun& of) {
                       const auto& [document, view, first, count, run, stride] = of;
                       return fmt::format("{} {} {} {} {} {}", document, static_cast<int>(view), first, count, run,
                                          stride);
                     }));
}

std::string text(const ExchangeListPtr& list) {
  if (list == nullptr) return "none";
  return text_of(*list, [](const PeerExchange& of) {
    const auto& [peer, send_rows, send_column, send_columns, receive_rows, receive_column, receive_columns] = of;
    return fmt::format("{} {} {} {} {} {} {}", peer, text(send_rows), send_column, send_columns, text(receive_rows),
                       receive_column, receive_columns);
  });
}

std::string text(const ShapeSet& of) {
  const auto& [row_maps, row_lists, pieces, chunk_lists, exchanges] = of;
  return fmt::format(
      "shape maps {} lists {} pieces {} chunks {} exchanges {}",
      text_of(row_maps, [](const RowMapPtr& map) { return text(map); }),
      text_of(row_lists, [](const RowListPtr& list) { return text(list); }),
      text_of(pieces,
              [](const PieceListPtr& list) {
                if (list == nullptr) return std::string("none");
                return text_of(list->pieces, [](const Piece& piece) { return text(piece); });
              }),
      text_of(chunk_lists,
              [](const std::vector<std::int32_t>& chunks) { return fmt::format("{}", fmt::join(chunks, " ")); }),
      text_of(exchanges, [](const ExchangeListPtr& list) { return text(list); }));
}

std::string text(const TensorKind& of) {
  const auto& [name, rows, flat_rows, columns, type, category] = of;
  return fmt::format("tensor {} {} {} {} {} {}", name, rows, flat_rows, columns, static_cast<int>(type),
                     static_cast<int>(category));
}

}  // namespace

std::vector<std::string> schedule_lines(const Schedule& schedule) {
  const auto& [model, batch, tensors, segments, programs, groups, roles, ranks, shapes] = schedule;
  std::vector<std::string> lines;
  lines.push_back(fmt::format("model {} batch {}", model.name, fmt::join(batch->documents, " ")));
  for (const TensorKind& tensor : tensors) lines.push_back(text(tensor));
  for (const Segment& segment : segments) {
    lines.push_back("segment " + segment.name);
    for (const Op& op : segment.ops) lines.push_back(text(op));
  }
  for (const auto& [blocks, resident] : programs) {
    lines.push_back("program resident " + refs(resident));
    for (const auto& [segment, first_layer, iterations, layer_step, chunk] : blocks) {
      lines.push_back(fmt::format("block {} {} {} {} {}", segment, first_layer, iterations, int{layer_step}, chunk));
    }
  }
  for (const Group& group : groups) lines.push_back(fmt::format("group {}", fmt::join(group.members, " ")));
  for (const std::string& role : roles) lines.push_back("role " + role);
  for (const auto& [program, of_role, of_chunk, representative] : ranks) {
    lines.push_back(fmt::format("rank {} groups {} shapes {} representative {}", program, fmt::join(of_role, " "),
                                fmt::join(of_chunk, " "), representative));
  }
  for (const ShapeSet& shape : shapes) lines.push_back(text(shape));
  return lines;
}

}  // namespace longhaul::oracle
