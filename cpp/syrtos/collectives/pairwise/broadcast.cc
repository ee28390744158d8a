// Broadcast: a binomial tree, in pieces, so that a member passes one piece on while it receives the
// next ones.
//
// Members are renumbered so that the root is 0. The parent of v is v without its lowest set bit;
// its children are v + 2^k for all 2^k below that bit.
#include <algorithm>
#include <array>
#include <cstring>

#include "syrtos/collectives/pairwise/exchange.h"

namespace syrtos {
namespace {

constexpr int64_t kWindow = 4;  // pieces under way per member

class Tree {
 public:
  Tree(const Members& members, int root_position) : size_(members.size()) {
    const auto begin = members.positions.begin();
    root_ = static_cast<int>(std::find(begin, members.positions.end(), root_position) - begin);
    self_ = (members.self + size_ - root_) % size_;
  }

  bool is_root() const { return self_ == 0; }
  int parent() const { return Member(self_ & (self_ - 1)); }

  // The child with the largest subtree first.
  std::vector<int> children() const {
    int bit = 1;
    while (bit < size_ && (self_ & bit) == 0) bit <<= 1;
    std::vector<int> children;
    for (bit >>= 1; bit > 0; bit >>= 1) {
      if (self_ + bit < size_) children.push_back(Member(self_ + bit));
    }
    return children;
  }

 private:
  int Member(int number) const { return (number + root_) % size_; }

  int size_;
  int root_ = 0;
  int self_ = 0;
};

}  // namespace

Status PairwiseBroadcast(const Exchange& exchange) {
  const Span all{0, exchange.part.count};
  const Tree tree(exchange.members, exchange.collective.root);
  const std::vector<int> children = tree.children();
  const int64_t piece = exchange.PieceElements(1);
  const int64_t pieces = PieceCount(all.count, piece);

  std::array<Messages, kWindow> arriving;
  std::array<Messages, kWindow> leaving;
  const auto post = [&](int64_t index) {
    if (tree.is_root() || index >= pieces) return Status::Ok();
    const Span run = PieceOf(all, piece, index);
    return arriving[static_cast<size_t>(index % kWindow)].Recv(
        exchange, tree.parent(), Phase::kData, index, exchange.output(run.begin), run.count);
  };
  for (int64_t index = 0; index < std::min(pieces, kWindow); ++index) {
    SYRTOS_RETURN_IF_ERROR(post(index));
  }
  for (int64_t index = 0; index < pieces; ++index) {
    const auto slot = static_cast<size_t>(index % kWindow);
    SYRTOS_RETURN_IF_ERROR(arriving[slot].Wait());
    SYRTOS_RETURN_IF_ERROR(leaving[slot].Wait());
    SYRTOS_RETURN_IF_ERROR(post(index + kWindow));
    const Span run = PieceOf(all, piece, index);
    const uint8_t* data = tree.is_root() ? exchange.input(run.begin) : exchange.output(run.begin);
    for (int child : children) {
      SYRTOS_RETURN_IF_ERROR(
          leaving[slot].Send(exchange, child, Phase::kData, index, data, run.count));
    }
    if (tree.is_root() && !exchange.in_place()) {  // while the piece is on its way
      std::memcpy(exchange.output(run.begin), data,
                  static_cast<size_t>(run.count) * exchange.item_bytes());
    }
  }
  for (Messages& messages : leaving) SYRTOS_RETURN_IF_ERROR(messages.Wait());
  return Status::Ok();
}

}  // namespace syrtos
