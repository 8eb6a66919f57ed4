// The shape table: everything in which ranks and chunks differ. Immutable; shared by the layers of a chunk and by every
// rank whose shapes are equal.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/schedule/piece.h"

namespace longhaul {

// What one member exchanges with one peer of the group in one part of an exchange.
struct PeerExchange {
  std::int32_t peer = 0;  // member index in the group
  RowListPtr send_rows;   // of the send view; nullptr sends nothing
  std::int64_t send_column = 0, send_columns = 0;
  RowListPtr receive_rows;  // of the receive view; nullptr receives nothing
  std::int64_t receive_column = 0, receive_columns = 0;
};
using ExchangeList = std::vector<PeerExchange>;
using ExchangeListPtr = std::shared_ptr<const ExchangeList>;

struct ShapeSet {
  std::vector<RowMapPtr> row_maps;                     // by RowMapSlot
  std::vector<RowListPtr> row_lists;                   // by RowListSlot
  std::vector<PieceListPtr> pieces;                    // by PieceSlot
  std::vector<std::vector<std::int32_t>> chunk_lists;  // by ChunkListSlot
  std::vector<ExchangeListPtr> exchanges;              // by ExchangeSlot
};

}  // namespace longhaul
