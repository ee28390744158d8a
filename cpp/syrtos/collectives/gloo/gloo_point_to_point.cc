#include "syrtos/collectives/gloo/gloo_point_to_point.h"

#include <exception>
#include <string>
#include <utility>

#include "syrtos/base/log.h"
#include "syrtos/collectives/gloo/gloo_text.h"

namespace syrtos {
namespace {

// Of a wait. Far away, but its sum with the clock still fits into 64-bit nanoseconds.
constexpr std::chrono::hours kForever{24 * 365};

}  // namespace

class GlooTransfer : public Transfer {
 public:
  GlooTransfer(GlooPointToPoint& owner, int peer, bool sending,
               std::unique_ptr<gloo::transport::UnboundBuffer> buffer)
      : owner_(owner), peer_(peer), sending_(sending), buffer_(std::move(buffer)) {}

  ~GlooTransfer() override {
    // From here on Abort cannot reach it.
    MutexLock lock(owner_.mutex_);
    owner_.outstanding_.erase(this);
  }

  void Post(uint64_t tag) {
    if (sending_) {
      buffer_->send(peer_, tag);
    } else {
      buffer_->recv(peer_, tag);
    }
  }

  Status Wait() override {
    if (done_) return Status::Ok();
    const Status failure = owner_.failure_.Get();
    if (!failure.ok()) return owner_.Fail(failure);
    try {
      const bool finished = sending_ ? buffer_->waitSend(kForever) : buffer_->waitRecv(kForever);
      if (finished) {
        done_ = true;
        return Status::Ok();
      }
      return owner_.Fail(Status::Internal("a Gloo wait was aborted without a cause"));
    } catch (const std::exception& error) {
      return owner_.Fail(owner_.Lost(peer_, error.what()));
    }
  }

  // From any thread. Gloo remembers it, should the wait begin later.
  void Abort() {
    if (sending_) {
      buffer_->abortWaitSend();
    } else {
      buffer_->abortWaitRecv();
    }
  }

 private:
  GlooPointToPoint& owner_;
  const int peer_;
  const bool sending_;
  bool done_ = false;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
};

namespace {

// A message of no bytes: nothing is sent.
class NoTransfer : public Transfer {
 public:
  Status Wait() override { return Status::Ok(); }
};

}  // namespace

GlooPointToPoint::GlooPointToPoint(int rank, int size,
                                   std::shared_ptr<gloo::rendezvous::Context> context)
    : rank_(rank), size_(size), context_(std::move(context)) {}

GlooPointToPoint::~GlooPointToPoint() {
  // After a failure the peers shall learn at once: a hard close resets the connections. Otherwise
  // the destructors of Gloo close softly: a reset would throw away what a slower peer has yet to
  // read.
  const Status failure = failure_.Get();
  if (!failure.ok()) static_cast<void>(Fail(failure));
}

Result<std::unique_ptr<Transfer>> GlooPointToPoint::Send(int peer, uint64_t tag, const void* data,
                                                         uint64_t bytes) {
  return Post(peer, true, tag, const_cast<void*>(data), bytes);  // Gloo has one type for both
}

Result<std::unique_ptr<Transfer>> GlooPointToPoint::Recv(int peer, uint64_t tag, void* data,
                                                         uint64_t bytes) {
  return Post(peer, false, tag, data, bytes);
}

Result<std::unique_ptr<Transfer>> GlooPointToPoint::Post(int peer, bool sending, uint64_t tag,
                                                         void* data, uint64_t bytes) {
  if (bytes == 0) {
    SYRTOS_RETURN_IF_ERROR(failure_.Get());
    return std::unique_ptr<Transfer>(std::make_unique<NoTransfer>());
  }
  try {
    auto transfer = std::make_unique<GlooTransfer>(*this, peer, sending,
                                                   context_->createUnboundBuffer(data, bytes));
    {
      // Together, so that an Abort either is seen here or finds the transfer.
      MutexLock lock(mutex_);
      outstanding_.insert(transfer.get());
    }
    const Status failure = failure_.Get();
    if (!failure.ok()) return Fail(failure);
    transfer->Post(tag);
    return std::unique_ptr<Transfer>(std::move(transfer));
  } catch (const std::exception& error) {
    return Fail(Lost(peer, error.what()));
  }
}

void GlooPointToPoint::Abort(const Status& cause) {
  static_cast<void>(failure_.Set(cause));
  MutexLock lock(mutex_);
  for (GlooTransfer* transfer : outstanding_) transfer->Abort();
}

Status GlooPointToPoint::Fail(const Status& cause) {
  const Status first = failure_.Set(cause);
  if (closed_) return first;
  closed_ = true;
  try {
    context_->closeConnections();
  } catch (const std::exception& error) {
    // The first cause is what counts.
    SYRTOS_LOG(kDebug, "gloo") << "closing the connections: " << error.what();
  }
  return first;
}

Status GlooPointToPoint::Lost(int peer, const char* what) const {
  return Status::PeerLost("rank " + std::to_string(rank_) + " lost its Gloo connection to rank " +
                          std::to_string(peer) + " (" + WithoutSourceLine(what) +
                          "). Look at the output of that rank for the reason.");
}

}  // namespace syrtos
