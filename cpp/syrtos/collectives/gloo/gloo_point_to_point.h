// PointToPoint over Gloo's TCP transport: unbound buffers, with the tag as slot.
//
// Sizes are 64-bit all the way: Gloo's header has 64-bit lengths and it goes on where a system call
// stopped short, so a message is sent whole.
//
// Lifetime of a message's memory. Gloo's event thread holds only a weak reference to an unbound
// buffer and locks it for each single read or write; ~UnboundBuffer waits until no such lock is
// held. Hence: once a Transfer is destroyed, Gloo never touches its memory again, also if the
// message was half way through. But then the connection is stuck in the middle of that message and
// its event thread spins over it, so an unfinished transfer may only be dropped after a failure,
// and the first call that reports a failure closes all connections.
//
// What Gloo does not do: when a peer dies, Gloo fails the messages that wait for their turn, but
// not the one that is just being read or written. Such a wait ends only by Abort, called by whoever
// watches the peers' lives.
//
// Waits have no time-out to speak of: one that expires makes Gloo close all connections.
//
// Threads: as PointToPoint. Gloo's event thread is created with all signals blocked.
#pragma once

#include <gloo/context.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <memory>
#include <set>

#include "syrtos/base/config.h"
#include "syrtos/base/mutex.h"
#include "syrtos/collectives/failure_latch.h"
#include "syrtos/collectives/pairwise/point_to_point.h"
#include "syrtos/transport/store.h"

namespace syrtos {

class GlooTransfer;

class GlooPointToPoint : public PointToPoint {
 public:
  // Connects to all ranks; kTimeout, kPeerLost or kInvalidArgument naming the culprit.
  static Result<std::unique_ptr<PointToPoint>> Create(const Config& config, Store& store);

  ~GlooPointToPoint() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Result<std::unique_ptr<Transfer>> Send(int peer, uint64_t tag, const void* data,
                                         uint64_t bytes) override;
  Result<std::unique_ptr<Transfer>> Recv(int peer, uint64_t tag, void* data,
                                         uint64_t bytes) override;
  void Abort(const Status& cause) override;

 private:
  friend class GlooTransfer;

  GlooPointToPoint(int rank, int size, std::shared_ptr<gloo::rendezvous::Context> context);

  Result<std::unique_ptr<Transfer>> Post(int peer, bool sending, uint64_t tag, void* data,
                                         uint64_t bytes);
  // Keeps the first cause, closes the connections, returns the first cause. Not for Abort's thread.
  Status Fail(const Status& cause);
  Status Lost(int peer, const char* what) const;

  const int rank_;
  const int size_;
  FailureLatch failure_;
  bool closed_ = false;  // used by the one thread that sends, receives and waits
  Mutex mutex_;
  std::set<GlooTransfer*> outstanding_ GUARDED_BY(mutex_);
  // Last: destroyed first, while everything its callbacks could reach still stands.
  std::shared_ptr<gloo::rendezvous::Context> context_;
};

}  // namespace syrtos
