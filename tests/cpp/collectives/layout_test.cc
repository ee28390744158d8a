// Sizes beyond 2^31 and 2^32 are tested here: the arithmetic needs no memory.
#include "syrtos/collectives/layout.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "syrtos/collectives/packing.h"
#include "syrtos/collectives/pairwise/exchange.h"

namespace syrtos {
namespace {

constexpr int64_t kHuge = int64_t{5} << 40;

Collective Group(CollectiveKind kind, std::vector<uint8_t> active, int self = 0) {
  Collective collective;
  collective.kind = kind;
  collective.active = std::move(active);
  for (size_t i = 0; i < collective.active.size(); ++i)
    collective.ranks.push_back(static_cast<int>(i));
  collective.self = self;
  return collective;
}

TEST(LayoutTest, EvenSlicesCoverEverythingOnce) {
  for (int64_t count : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{8}, kHuge + 3}) {
    for (int parts : {1, 2, 3, 7, 1000}) {
      int64_t next = 0;
      for (int i = 0; i < parts; ++i) {
        const Span slice = EvenSlice(count, parts, i);
        EXPECT_EQ(slice.begin, next);
        EXPECT_LE(slice.count - count / parts, 1);
        EXPECT_GE(slice.count - count / parts, 0);
        next += slice.count;
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(LayoutTest, EvenSlicesGiveTheFirstOnesMore) {
  EXPECT_EQ(EvenSlice(8, 3, 0).count, 3);
  EXPECT_EQ(EvenSlice(8, 3, 1).count, 3);
  EXPECT_EQ(EvenSlice(8, 3, 2).count, 2);
}

TEST(LayoutTest, PiecesCoverASliceOnce) {
  for (int64_t count : {0, 1, 9, 10, 11, 100}) {
    const Span slice{kHuge, count};
    int64_t next = slice.begin;
    for (int64_t i = 0; i < PieceCount(count, 10); ++i) {
      const Span piece = PieceOf(slice, 10, i);
      EXPECT_EQ(piece.begin, next);
      EXPECT_GT(piece.count, 0);
      EXPECT_LE(piece.count, 10);
      next += piece.count;
    }
    EXPECT_EQ(next, kHuge + count);
    EXPECT_EQ(PieceOf(slice, 10, PieceCount(count, 10)).count, 0);
    EXPECT_EQ(PieceOf(slice, 10, 1000).count, 0);
  }
}

TEST(LayoutTest, PiecesOfHugeSlicesDoNotOverflow) {
  const Span slice{0, std::numeric_limits<int64_t>::max()};
  const int64_t piece = 1 << 18;
  EXPECT_EQ(PieceCount(slice.count, piece), int64_t{1} << 45);
  const Span last = PieceOf(slice, piece, (int64_t{1} << 45) - 1);
  EXPECT_EQ(last.begin + last.count, slice.count);
  EXPECT_EQ(last.count, piece - 1);
}

TEST(LayoutTest, OffsetsAre64Bit) {
  const std::vector<int64_t> offsets = Offsets({kHuge, 0, int64_t{1} << 33});
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, kHuge, kHuge, kHuge + (int64_t{1} << 33)}));
}

TEST(LayoutTest, AddressesAre64Bit) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that is never used
  const auto* base = reinterpret_cast<const uint8_t*>(uintptr_t{4096});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(At(static_cast<const void*>(base), int64_t{3} << 32, 8)),
            uintptr_t{4096} + (uintptr_t{3} << 35));
}

TEST(LayoutTest, MembersAreTheActivePositions) {
  const Members members = MembersOf(Group(CollectiveKind::kAllreduce, {0, 1, 0, 1, 1}, 3));
  EXPECT_EQ(members.positions, (std::vector<int>{1, 3, 4}));
  EXPECT_EQ(members.self, 1);
  Collective all = Group(CollectiveKind::kAllreduce, {1, 1});
  all.active.clear();
  EXPECT_EQ(MembersOf(all).size(), 2);
  EXPECT_EQ(ActiveCount(all), 2);
}

TEST(LayoutTest, RefusesPartsThatDoNotFit) {
  float memory = 0;
  const auto check = [&](const Collective& collective, Part part) {
    part.input = part.output = &memory;
    return CheckParts(collective, {part});
  };
  const Collective gather = Group(CollectiveKind::kAllgather, {1, 1});
  Part part;
  part.counts = {1, 0};
  EXPECT_TRUE(check(gather, part).ok());
  part.counts = {1};
  EXPECT_NE(check(gather, part).message().find("1 entries for a group of 2"), std::string::npos);
  part.counts = {1, -1};
  EXPECT_FALSE(check(gather, part).ok());
  part.counts = {1, std::numeric_limits<int64_t>::max()};
  EXPECT_FALSE(check(gather, part).ok()) << "the sum overflows";
  part.counts = {1, std::numeric_limits<int64_t>::max() / 2};
  EXPECT_FALSE(check(gather, part).ok()) << "the bytes overflow";

  Collective cast = Group(CollectiveKind::kBroadcast, {1, 0});
  part.count = 1;
  EXPECT_TRUE(check(cast, part).ok());
  cast.root = 1;
  EXPECT_NE(check(cast, part).message().find("no active member"), std::string::npos);
  cast.root = 2;
  EXPECT_FALSE(check(cast, part).ok());
  cast.root = 0;
  cast.self = 1;
  EXPECT_FALSE(check(cast, part).ok()) << "this rank has joined";

  Collective all = Group(CollectiveKind::kAlltoall, {1, 1});
  part.counts = {2, 3};
  part.recv_counts = {1, 3};
  EXPECT_FALSE(check(all, part).ok()) << "what stays here differs";
  EXPECT_FALSE(
      CheckParts(Group(CollectiveKind::kAllreduce, {1}), {Part{nullptr, &memory, 1, {}, {}, {}}})
          .ok());
}

TEST(LayoutTest, OnlyAdasumIsToldWhereTensorsEnd) {
  Collective collective = Group(CollectiveKind::kAllreduce, {1, 1});
  float memory[8] = {};
  Part part;
  part.input = part.output = memory;
  part.count = 3;
  Part other = part;
  other.count = 5;
  EXPECT_TRUE(PackedPart(collective, {part, other}).segments.empty());
  collective.op = ReduceOp::kAdasum;
  Part whole = PackedPart(collective, {part, other});
  EXPECT_EQ(whole.count, 8);
  EXPECT_EQ(whole.segments, (std::vector<int64_t>{3, 5}));
  whole.input = whole.output = memory;
  EXPECT_TRUE(CheckParts(collective, {whole}).ok());
  for (const std::vector<int64_t>& wrong :
       {std::vector<int64_t>{3}, {3, 6}, {9, -1}, {kHuge, kHuge}}) {
    whole.segments = wrong;
    EXPECT_EQ(CheckParts(collective, {whole}).code(), StatusCode::kInvalidArgument);
  }
}

TEST(LayoutTest, PacksHugeListsWithoutOverflow) {
  Collective collective = Group(CollectiveKind::kReduceScatter, {1, 0, 1});
  collective.item_bytes = 2;
  Part part;
  part.counts = {kHuge, kHuge, 1};
  const Part whole = PackedPart(collective, {part, part, part});
  EXPECT_EQ(whole.counts, (std::vector<int64_t>{3 * kHuge, 0, 3})) << "nothing for the absent";
  const PackedRegions regions = RegionsOf(collective, whole);
  EXPECT_EQ(regions.output_begin, static_cast<size_t>(6 * kHuge + 64)) << "aligned";
  EXPECT_EQ(regions.bytes, static_cast<size_t>(12 * kHuge + 64));
}

TEST(MessageTagTest, IsUniqueAmongMessagesInFlight) {
  std::set<uint64_t> tags;
  for (uint64_t sequence : {uint64_t{0}, uint64_t{1}, uint64_t{2}, (uint64_t{1} << 32) - 1}) {
    for (Phase phase : {Phase::kData, Phase::kResult}) {
      for (int64_t piece : {int64_t{0}, int64_t{1}, (int64_t{1} << 31) - 1}) {
        tags.insert(MessageTag(sequence, phase, piece));
      }
    }
  }
  EXPECT_EQ(tags.size(), 24u);
}

}  // namespace
}  // namespace syrtos
