// What the pairwise algorithms share: one running collective and its messages.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "syrtos/collectives/aligned_buffer.h"
#include "syrtos/collectives/collective.h"
#include "syrtos/collectives/layout.h"
#include "syrtos/collectives/pairwise/pairwise_communicator.h"
#include "syrtos/collectives/pairwise/point_to_point.h"

namespace syrtos {

// Phases of one collective; part of the tag.
enum class Phase : uint8_t { kData = 0, kResult = 1 };

// Unique among the messages in flight between two ranks: 32 bits of the sequence number, 1 of the
// phase, 31 of the piece. (Sequence numbers return after 2^32 plans, long after the message
// arrived.)
uint64_t MessageTag(uint64_t sequence, Phase phase, int64_t piece);

// One collective on one part, as an algorithm sees it. Memory and peers in elements and members.
struct Exchange {
  PointToPoint& wire;
  const Collective& collective;
  const Part& part;
  const Members& members;
  const PairwiseOptions& options;
  AlignedBuffer& scratch;  // for pieces; of the communicator, grows and is kept
  AlignedBuffer& copy;     // for what cannot be done in place; likewise

  size_t item_bytes() const { return collective.item_bytes; }
  const uint8_t* input(int64_t element) const { return At(part.input, element, item_bytes()); }
  uint8_t* output(int64_t element) const { return At(part.output, element, item_bytes()); }
  bool in_place() const { return part.input == part.output; }
  // Elements that are handled at a time when `copies` pieces are held in scratch memory.
  int64_t PieceElements(int64_t copies) const;
};

// Messages under way. Dropping the list after a failure drops the messages (see Transfer).
class Messages {
 public:
  // `count` elements to or from a member; 0 elements are no message.
  Status Send(const Exchange& exchange, int member, Phase phase, int64_t piece, const void* data,
              int64_t count);
  Status Recv(const Exchange& exchange, int member, Phase phase, int64_t piece, void* data,
              int64_t count);
  // The same for what is no tensor.
  Status SendBytes(const Exchange& exchange, int member, Phase phase, int64_t piece,
                   const void* data, uint64_t bytes);
  Status RecvBytes(const Exchange& exchange, int member, Phase phase, int64_t piece, void* data,
                   uint64_t bytes);
  // Waits for all, then forgets them.
  Status Wait();
  bool empty() const { return transfers_.empty(); }

 private:
  std::vector<std::unique_ptr<Transfer>> transfers_;
};

// One file each. Precondition: CheckParts.
Status PairwiseAllreduce(const Exchange& exchange);
Status PairwiseAdasum(const Exchange& exchange);
Status PairwiseReduceScatter(const Exchange& exchange);
Status PairwiseAllgather(const Exchange& exchange);
Status PairwiseAlltoall(const Exchange& exchange);
Status PairwiseBroadcast(const Exchange& exchange);

}  // namespace syrtos
