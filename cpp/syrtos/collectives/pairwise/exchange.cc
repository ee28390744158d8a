#include "syrtos/collectives/pairwise/exchange.h"

#include <algorithm>
#include <utility>

namespace syrtos {
namespace {

constexpr int64_t kScratchBytes = 32 << 20;   // pieces shrink rather than need more than this ...
constexpr int64_t kSmallestPiece = 16 << 10;  // ... but not below this, where messages get slow

}  // namespace

uint64_t MessageTag(uint64_t sequence, Phase phase, int64_t piece) {
  constexpr uint64_t kPieceMask = (uint64_t{1} << 31) - 1;
  return (sequence << 32) | (static_cast<uint64_t>(phase) << 31) |
         (static_cast<uint64_t>(piece) & kPieceMask);
}

int64_t Exchange::PieceElements(int64_t copies) const {
  const int64_t floor = std::min(options.piece_bytes, kSmallestPiece);
  const int64_t share = kScratchBytes / std::max<int64_t>(copies, 1);
  const int64_t bytes = std::clamp(share, floor, options.piece_bytes);
  return std::max<int64_t>(1, bytes / static_cast<int64_t>(item_bytes()));
}

Status Messages::Send(const Exchange& exchange, int member, Phase phase, int64_t piece,
                      const void* data, int64_t count) {
  return SendBytes(exchange, member, phase, piece, data,
                   static_cast<uint64_t>(count) * exchange.item_bytes());
}

Status Messages::Recv(const Exchange& exchange, int member, Phase phase, int64_t piece, void* data,
                      int64_t count) {
  return RecvBytes(exchange, member, phase, piece, data,
                   static_cast<uint64_t>(count) * exchange.item_bytes());
}

Status Messages::SendBytes(const Exchange& exchange, int member, Phase phase, int64_t piece,
                           const void* data, uint64_t bytes) {
  if (bytes == 0) return Status::Ok();
  const int position = exchange.members.position(member);
  SYRTOS_ASSIGN_OR_RETURN(
      std::unique_ptr<Transfer> transfer,
      exchange.wire.Send(exchange.collective.ranks[static_cast<size_t>(position)],
                         MessageTag(exchange.collective.sequence, phase, piece), data, bytes));
  transfers_.push_back(std::move(transfer));
  return Status::Ok();
}

Status Messages::RecvBytes(const Exchange& exchange, int member, Phase phase, int64_t piece,
                           void* data, uint64_t bytes) {
  if (bytes == 0) return Status::Ok();
  const int position = exchange.members.position(member);
  SYRTOS_ASSIGN_OR_RETURN(
      std::unique_ptr<Transfer> transfer,
      exchange.wire.Recv(exchange.collective.ranks[static_cast<size_t>(position)],
                         MessageTag(exchange.collective.sequence, phase, piece), data, bytes));
  transfers_.push_back(std::move(transfer));
  return Status::Ok();
}

Status Messages::Wait() {
  for (const std::unique_ptr<Transfer>& transfer : transfers_) {
    SYRTOS_RETURN_IF_ERROR(transfer->Wait());
  }
  transfers_.clear();
  return Status::Ok();
}

}  // namespace syrtos
