// The wire under the pairwise algorithms: tagged messages between any two ranks of the world.
//
// Threads: Send, Recv and Transfer::Wait by one thread at a time; Abort by any thread.
// Matching: by (peer, tag); a tag is used at most once between two ranks in one direction at a
// time. Progress: a message moves as soon as both sides have posted it, whether or not anybody
// waits. Failure: kPeerLost naming the peer; after a failure or Abort all calls repeat the first
// cause.
#pragma once

#include <cstdint>
#include <memory>

#include "syrtos/base/result.h"

namespace syrtos {

class Transfer {
 public:
  // The memory must stay until Wait has returned Ok or the Transfer is gone: the destructor of an
  // unfinished one returns only when its memory will not be touched again. After a failure the
  // caller therefore drops its transfers first and its memory second.
  virtual ~Transfer() = default;
  virtual Status Wait() = 0;
};

class PointToPoint {
 public:
  virtual ~PointToPoint() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Bytes may be 0 (nothing is sent) and beyond 2^31.
  virtual Result<std::unique_ptr<Transfer>> Send(int peer, uint64_t tag, const void* data,
                                                 uint64_t bytes) = 0;
  virtual Result<std::unique_ptr<Transfer>> Recv(int peer, uint64_t tag, void* data,
                                                 uint64_t bytes) = 0;
  virtual void Abort(const Status& cause) = 0;
};

}  // namespace syrtos
