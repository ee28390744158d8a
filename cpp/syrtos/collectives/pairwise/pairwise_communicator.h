// A communicator over any PointToPoint wire: each member owns a slice of the data, receives that
// slice from all others, combines it in the order of ranks and sends the result back (a direct
// reduce-scatter followed by a direct allgather); small payloads are sent whole to everybody and
// combined by everybody. Adasum halves the vectors while it doubles the distance. Broadcast is a
// binomial tree in pieces, allgather and alltoall are direct.
// One file per collective. Needs contiguous memory: wrap it in a PackedCommunicator.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "syrtos/collectives/communicator.h"
#include "syrtos/collectives/pairwise/point_to_point.h"

namespace syrtos {

// Neither changes a result: an element is always combined in the order of positions.
struct PairwiseOptions {
  int64_t piece_bytes = 1 << 20;  // what is received, combined and sent on at a time
  int64_t small_bytes = 4 << 10;  // an allreduce up to this size takes one round
};

// `name` is what Communicator::name returns ("gloo"); `score` its bid for everything it can do.
std::unique_ptr<Communicator> MakePairwiseCommunicator(std::string name, int score,
                                                       std::unique_ptr<PointToPoint> wire,
                                                       PairwiseOptions options = {});

}  // namespace syrtos
