// Adasum: vectors are halved while the distance between partners doubles.
//
// The pairs are those of the positions in the group: neighbours first, then pairs of pairs, and so
// on, so the result is defined by the ranks' order alone. Absent positions are zero vectors, which
// change nothing: their side of a pair is skipped.
//
// At each level two teams, whose members hold a share each of their team's vector, become one: the
// shares are cut in two, and each member gets both vectors' elements of its new share. The products
// that the factors need are then told to all, and each combines its share. In the end the shares go
// back the way they came, until each member has the whole result.
//
// Blocks. A share is a run of blocks. The tensors are cut into blocks on their own, whatever lies
// beside them, and products are formed per block and added in the order of blocks. So a tensor's
// bits do not depend on the tensors that it happens to be fused with.
#include <algorithm>
#include <utility>

#include "syrtos/collectives/adasum_loops.h"
#include "syrtos/collectives/pairwise/exchange.h"

namespace syrtos {
namespace {

constexpr int64_t kBlockElements = 4096;

// Members that hold a vector together, in the order of their shares.
using Team = std::vector<int>;

struct Blocks {
  int64_t begin = 0;
  int64_t end = 0;
};

Blocks Common(const Blocks& a, const Blocks& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

// The shares of teams of s and 2s members are nested, so that halving moves as little as it can.
Blocks ShareOf(int64_t blocks, const Team& team, size_t index) {
  const auto size = static_cast<int64_t>(team.size());
  const auto edge = [&](int64_t i) { return blocks / size * i + blocks % size * i / size; };
  return {edge(static_cast<int64_t>(index)), edge(static_cast<int64_t>(index) + 1)};
}

// Members whose shares lie at the same place become neighbours.
Team Merge(const Team& left, const Team& right) {
  Team merged;
  size_t l = 0, r = 0;
  while (l < left.size() || r < right.size()) {
    const bool takes_left = l < left.size() && l * right.size() <= r * left.size();
    merged.push_back(takes_left || r == right.size() ? left[l++] : right[r++]);
  }
  return merged;
}

size_t IndexIn(const Team& team, int member) {
  return static_cast<size_t>(std::find(team.begin(), team.end(), member) - team.begin());
}

// One level at which the own member meets others.
struct Level {
  Team left;
  Team right;
  Team merged;
  bool is_left = false;
  int width = 0;  // positions below, absent ones included: the same number for all of a level
  const Team& own() const { return is_left ? left : right; }
};

// Of the positions [begin, begin + count), a power of two. Appends the own member's levels.
Team Climb(const std::vector<int>& member_at, int begin, int count, int self,
           std::vector<Level>* levels) {
  if (count == 1) {
    const int member = member_at[static_cast<size_t>(begin)];
    return member < 0 ? Team() : Team{member};
  }
  Level level;
  level.width = count;
  level.left = Climb(member_at, begin, count / 2, self, levels);
  level.right = Climb(member_at, begin + count / 2, count / 2, self, levels);
  level.merged = Merge(level.left, level.right);
  Team merged = level.merged;
  level.is_left = IndexIn(level.left, self) < level.left.size();
  const bool concerned = IndexIn(merged, self) < merged.size();
  if (concerned && !level.left.empty() && !level.right.empty()) {
    levels->push_back(std::move(level));
  }
  return merged;
}

class Adasum {
 public:
  explicit Adasum(const Exchange& exchange) : exchange_(exchange), self_(exchange.members.self) {
    CutIntoBlocks();
    std::vector<int> member_at(exchange.collective.ranks.size(), -1);
    for (int member = 0; member < exchange.members.size(); ++member) {
      member_at[static_cast<size_t>(exchange.members.position(member))] = member;
    }
    Climb(member_at, 0, exchange.collective.size(), self_, &levels_);
  }

  Status Run() {
    const Collective& collective = exchange_.collective;
    CopyScaled(collective.dtype, collective.prescale, exchange_.part.input, exchange_.part.output,
               exchange_.part.count);
    for (const Level& level : levels_) {
      SYRTOS_RETURN_IF_ERROR(Halve(level));
      MultiplyShare(level);
      SYRTOS_RETURN_IF_ERROR(TellProducts(level));
      Combine(level);
    }
    const Team& all = levels_.back().merged;
    const Span own = ElementsOf(ShareOf(blocks(), all, IndexIn(all, self_)));
    CopyScaled(collective.dtype, collective.postscale, exchange_.output(own.begin),
               exchange_.output(own.begin), own.count);
    for (size_t i = levels_.size(); i-- > 0;) SYRTOS_RETURN_IF_ERROR(Return(levels_[i]));
    return Status::Ok();
  }

 private:
  int64_t blocks() const { return static_cast<int64_t>(begins_.size()) - 1; }
  int64_t BeginOf(int64_t block) const { return begins_[static_cast<size_t>(block)]; }
  Span ElementsOf(const Blocks& run) const {
    return {BeginOf(run.begin), BeginOf(run.end) - BeginOf(run.begin)};
  }

  void CutIntoBlocks() {
    const Part& part = exchange_.part;
    std::vector<int64_t> segments = part.segments;
    if (segments.empty()) segments.push_back(part.count);
    int64_t begin = 0;
    for (int64_t segment : segments) {
      first_blocks_.push_back(static_cast<int64_t>(begins_.size()));
      for (int64_t done = 0; done < segment; done += kBlockElements) {
        begins_.push_back(begin + done);
      }
      begin += segment;
    }
    first_blocks_.push_back(static_cast<int64_t>(begins_.size()));
    begins_.push_back(begin);
  }

  // Both vectors' elements of the new share: the own side's into the output, the other's into
  // scratch memory.
  Status Halve(const Level& level) {
    const size_t index = IndexIn(level.merged, self_);
    const Blocks old_share = ShareOf(blocks(), level.own(), IndexIn(level.own(), self_));
    share_ = ShareOf(blocks(), level.merged, index);
    const Span own = ElementsOf(share_);
    other_ = exchange_.scratch.Reserve(static_cast<size_t>(own.count) * exchange_.item_bytes());
    Messages messages;
    for (bool left : {true, false}) {
      const Team& team = left ? level.left : level.right;
      for (size_t i = 0; i < team.size(); ++i) {
        if (team[i] == self_) continue;
        const Span run = ElementsOf(Common(ShareOf(blocks(), team, i), share_));
        void* into = left == level.is_left
                         ? exchange_.output(run.begin)
                         : At(other_, run.begin - own.begin, exchange_.item_bytes());
        SYRTOS_RETURN_IF_ERROR(
            messages.Recv(exchange_, team[i], Phase::kData, NumberOf(level), into, run.count));
      }
    }
    for (size_t i = 0; i < level.merged.size(); ++i) {
      if (i == index) continue;
      const Span run = ElementsOf(Common(old_share, ShareOf(blocks(), level.merged, i)));
      SYRTOS_RETURN_IF_ERROR(messages.Send(exchange_, level.merged[i], Phase::kData,
                                           NumberOf(level), exchange_.output(run.begin),
                                           run.count));
    }
    return messages.Wait();
  }

  void MultiplyShare(const Level& level) {
    products_ = reinterpret_cast<AdasumProducts*>(
        exchange_.copy.Reserve(static_cast<size_t>(blocks()) * sizeof(AdasumProducts)));
    const int64_t base = BeginOf(share_.begin);
    for (int64_t block = share_.begin; block < share_.end; ++block) {
      const Span run = ElementsOf({block, block + 1});
      const void* mine = exchange_.output(run.begin);
      const void* theirs = At(other_, run.begin - base, exchange_.item_bytes());
      products_[block] = ProductsOf(exchange_.collective.dtype, level.is_left ? mine : theirs,
                                    level.is_left ? theirs : mine, run.count);
    }
  }

  // Every member that has a share learns all blocks' products. In each round it hears as many more
  // members' products as it knows already (J. Bruck et al., 1997).
  Status TellProducts(const Level& level) {
    const Team& merged = level.merged;
    std::vector<Blocks> shares;
    Team team;
    for (size_t i = 0; i < merged.size(); ++i) {
      const Blocks share = ShareOf(blocks(), merged, i);
      if (share.begin == share.end) continue;
      team.push_back(merged[i]);
      shares.push_back(share);
    }
    const size_t size = team.size();
    const size_t index = IndexIn(team, self_);
    if (index == size) return Status::Ok();
    int64_t number = 1;
    for (size_t known = 1; known < size; known *= 2) {
      const size_t count = std::min(known, size - known);
      Messages messages;
      for (size_t k = 0; k < count; ++k, ++number) {
        const Blocks in = shares[(index + known + k) % size];
        const Blocks out = shares[(index + k) % size];
        SYRTOS_RETURN_IF_ERROR(messages.RecvBytes(exchange_, team[(index + known) % size],
                                                  Phase::kData, NumberOf(level, number),
                                                  products_ + in.begin, BytesOf(in)));
        SYRTOS_RETURN_IF_ERROR(messages.SendBytes(exchange_, team[(index + size - known) % size],
                                                  Phase::kData, NumberOf(level, number),
                                                  products_ + out.begin, BytesOf(out)));
      }
      SYRTOS_RETURN_IF_ERROR(messages.Wait());
    }
    return Status::Ok();
  }

  void Combine(const Level& level) {
    const int64_t base = BeginOf(share_.begin);
    for (size_t segment = 0; segment + 1 < first_blocks_.size(); ++segment) {
      const Blocks whole = {first_blocks_[segment], first_blocks_[segment + 1]};
      const Span run = ElementsOf(Common(whole, share_));
      if (run.count == 0) continue;
      AdasumProducts sum;
      for (int64_t block = whole.begin; block < whole.end; ++block) sum.Add(products_[block]);
      void* mine = exchange_.output(run.begin);
      const void* theirs = At(other_, run.begin - base, exchange_.item_bytes());
      AddScaled(exchange_.collective.dtype, FactorsOf(sum), level.is_left ? mine : theirs,
                level.is_left ? theirs : mine, mine, run.count);
    }
  }

  // The result's elements of the share before this level.
  Status Return(const Level& level) {
    const size_t index = IndexIn(level.merged, self_);
    const Blocks have = ShareOf(blocks(), level.merged, index);
    const Blocks wanted = ShareOf(blocks(), level.own(), IndexIn(level.own(), self_));
    Messages messages;
    for (size_t i = 0; i < level.merged.size(); ++i) {
      if (i == index) continue;
      const Span run = ElementsOf(Common(wanted, ShareOf(blocks(), level.merged, i)));
      SYRTOS_RETURN_IF_ERROR(messages.Recv(exchange_, level.merged[i], Phase::kResult,
                                           NumberOf(level), exchange_.output(run.begin),
                                           run.count));
    }
    for (const Team* team : {&level.left, &level.right}) {
      for (size_t i = 0; i < team->size(); ++i) {
        if ((*team)[i] == self_) continue;
        const Span run = ElementsOf(Common(have, ShareOf(blocks(), *team, i)));
        SYRTOS_RETURN_IF_ERROR(messages.Send(exchange_, (*team)[i], Phase::kResult, NumberOf(level),
                                             exchange_.output(run.begin), run.count));
      }
    }
    return messages.Wait();
  }

  static uint64_t BytesOf(const Blocks& run) {
    return static_cast<uint64_t>(run.end - run.begin) * sizeof(AdasumProducts);
  }
  // Of a message between two members: 0 carries elements, those up to width - 1 carry products.
  // The next level's numbers begin where this one's end.
  static int64_t NumberOf(const Level& level, int64_t message = 0) {
    return int64_t{level.width} + message;
  }

  const Exchange& exchange_;
  const int self_;
  std::vector<int64_t> begins_;        // of each block, in elements, and the end
  std::vector<int64_t> first_blocks_;  // of each tensor, and the end
  std::vector<Level> levels_;
  Blocks share_;                        // at this level
  uint8_t* other_ = nullptr;            // the other team's elements of the share
  AdasumProducts* products_ = nullptr;  // of each block
};

}  // namespace

Status PairwiseAdasum(const Exchange& exchange) {
  if (exchange.part.count == 0) return Status::Ok();
  if (exchange.members.size() == 1) {
    const Collective& collective = exchange.collective;
    CopyScaled(collective.dtype, collective.prescale, exchange.part.input, exchange.part.output,
               exchange.part.count);
    CopyScaled(collective.dtype, collective.postscale, exchange.part.output, exchange.part.output,
               exchange.part.count);
    return Status::Ok();
  }
  return Adasum(exchange).Run();
}

}  // namespace syrtos
