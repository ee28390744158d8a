#include "syrtos/transport/tcp_store.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "syrtos/base/deadline.h"
#include "syrtos/base/fork_guard.h"
#include "syrtos/base/mutex.h"
#include "syrtos/transport/channel.h"
#include "syrtos/transport/store_protocol.h"

namespace syrtos {
namespace {

// How long the server may take beyond the time that a Get asks it to wait.
constexpr Seconds kServerPatience{60.0};

}  // namespace

class TcpStore::Impl {
 public:
  Impl(Socket socket, std::string endpoint)
      : endpoint_(std::move(endpoint)), channel_(std::move(socket), kMaxStoreFrameBytes) {}

  Result<std::string> Call(const StoreRequest& request) EXCLUDES(mutex_);

 private:
  Result<std::string> Exchange(const std::string& request, Seconds limit) REQUIRES(mutex_);

  const uint64_t fork_generation_ = ForkGeneration();
  const std::string endpoint_;  // for messages
  Mutex mutex_;
  Channel channel_ GUARDED_BY(mutex_);
  Status failure_ GUARDED_BY(mutex_);  // the first one, repeated by all later calls
};

Result<std::string> TcpStore::Impl::Call(const StoreRequest& request) {
  if (fork_generation_ != ForkGeneration()) {
    return Status::NotInitialized("the store's connection was made before this process was forked");
  }
  const std::string bytes = EncodeStoreRequest(request);
  if (bytes.size() > kMaxStoreFrameBytes) {
    return Status::InvalidArgument("the key \"" + request.key.substr(0, 100) +
                                   "\" and its value, " + std::to_string(bytes.size()) +
                                   " bytes, are beyond the store's " +
                                   std::to_string(kMaxStoreFrameBytes));
  }
  MutexLock lock(mutex_);
  SYRTOS_RETURN_IF_ERROR(failure_);
  const Result<std::string> answer =
      Exchange(bytes, Seconds(std::max(0.0, request.timeout.count())) + kServerPatience);
  if (!answer.ok()) {
    // Question and answer would be out of step from now on, so the connection is of no more use.
    const bool silent = answer.status().code() == StatusCode::kTimeout;
    failure_ = Status(silent ? StatusCode::kPeerLost : answer.status().code(),
                      "the store at " + endpoint_ + " is lost: " + answer.status().message());
    channel_.Close();
    return failure_;
  }
  return DecodeStoreAnswer(*answer);
}

Result<std::string> TcpStore::Impl::Exchange(const std::string& request, Seconds limit) {
  const Deadline deadline = DeadlineAfter(limit);
  SYRTOS_RETURN_IF_ERROR(channel_.SendBlocking(request, Remaining(deadline)));
  return channel_.ReceiveBlocking(Remaining(deadline));
}

Result<std::unique_ptr<TcpStore>> TcpStore::Connect(const std::string& address, int port,
                                                    Seconds timeout) {
  Result<Socket> socket = ::syrtos::Connect(address, port, timeout);
  if (!socket.ok()) return socket.status().WithPrefix("the store cannot be reached: ");
  auto impl = std::make_unique<Impl>(std::move(socket).value(), EndpointText(address, port));
  return std::unique_ptr<TcpStore>(new TcpStore(std::move(impl)));
}

TcpStore::TcpStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

TcpStore::~TcpStore() = default;

Status TcpStore::Set(const std::string& key, const std::string& value) {
  StoreRequest request;
  request.op = StoreOp::kSet;
  request.key = key;
  request.value = value;
  return impl_->Call(request).status();
}

Result<std::string> TcpStore::Get(const std::string& key, Seconds timeout) {
  StoreRequest request;
  request.op = StoreOp::kGet;
  request.key = key;
  request.timeout = timeout;
  return impl_->Call(request);
}

Result<int64_t> TcpStore::Add(const std::string& key, int64_t delta) {
  StoreRequest request;
  request.op = StoreOp::kAdd;
  request.key = key;
  request.delta = delta;
  SYRTOS_ASSIGN_OR_RETURN(const std::string text, impl_->Call(request));
  int64_t sum = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, sum);
  if (error != std::errc() || stop != end) {
    return Status::Internal("the store answered an addition with \"" + text.substr(0, 100) + "\"");
  }
  return sum;
}

Status TcpStore::Remove(const std::string& key) {
  StoreRequest request;
  request.op = StoreOp::kRemove;
  request.key = key;
  return impl_->Call(request).status();
}

}  // namespace syrtos
