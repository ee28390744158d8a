// The server's thread sleeps in epoll_wait until a client speaks, the first waiting Get runs out of
// time or the destructor calls. All state but the wake-up descriptor belongs to that thread.
#include <errno.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "syrtos/base/deadline.h"
#include "syrtos/base/errno_text.h"
#include "syrtos/base/fork_guard.h"
#include "syrtos/base/log.h"
#include "syrtos/base/thread.h"
#include "syrtos/transport/channel.h"
#include "syrtos/transport/poller.h"
#include "syrtos/transport/store_protocol.h"
#include "syrtos/transport/store_values.h"
#include "syrtos/transport/tcp_store.h"

namespace syrtos {
namespace {

// What epoll reports with an event. Clients are known by a number that is never used again: a
// descriptor could be a new client's by the time its old events are looked at.
constexpr uint64_t kWakeId = 0;
constexpr uint64_t kListenerId = 1;
constexpr uint64_t kFirstClientId = 2;

constexpr Seconds kAcceptPause{1.0};

}  // namespace

class TcpStoreServer::Impl {
 public:
  static Result<std::unique_ptr<Impl>> Create(const std::string& address, int port);
  ~Impl();
  int port() const { return listener_.port(); }

 private:
  struct Wait {
    std::string key;
    Seconds timeout;
    Deadline deadline;
  };
  struct Client {
    uint64_t id;
    Channel channel;
    uint32_t watched = EPOLLIN;
    std::optional<Wait> wait;  // for the answer to a Get
  };

  explicit Impl(Listener listener) : listener_(std::move(listener)) {}
  Status Watch(int operation, int fd, uint64_t id, uint32_t events);

  void Run();
  int NextTimeout() const;
  void AcceptClients();
  void PauseAccepting(const Status& cause);
  void ResumeAcceptingIfDue();
  Client* Find(uint64_t id);
  void HandleEvents(uint64_t id, uint32_t events);
  void ServeClient(uint64_t id);
  void Execute(Client& client, StoreRequest request);
  void GetOrWait(Client& client, const StoreRequest& request);
  void WakeWaiters(const std::string& key);
  void ExpireWaits();
  void EndWait(Client& client);
  void Answer(Client& client, const Result<std::string>& answer);
  void Drop(Client& client, const Status& cause);

  const uint64_t fork_generation_ = ForkGeneration();
  Listener listener_;
  Socket epoll_;
  std::optional<Event> wake_;  // the destructor's "stop"
  uint64_t next_id_ = kFirstClientId;
  std::map<uint64_t, Client> clients_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::set<uint64_t>> waiters_;       // key -> clients
  std::set<std::pair<Deadline, uint64_t>> wait_deadlines_;  // of the same waits
  std::optional<Deadline> accept_again_;                    // set: out of descriptors until then
  Thread thread_;                                           // last: ends before what it uses
};

Result<std::unique_ptr<TcpStoreServer::Impl>> TcpStoreServer::Impl::Create(
    const std::string& address, int port) {
  SYRTOS_ASSIGN_OR_RETURN(Listener listener, Listener::Create(address, port));
  std::unique_ptr<Impl> impl(new Impl(std::move(listener)));
  impl->epoll_ = Socket(epoll_create1(EPOLL_CLOEXEC));
  if (!impl->epoll_.valid()) {
    return Status::Internal("cannot start the store's server: " + ErrnoText(errno));
  }
  SYRTOS_ASSIGN_OR_RETURN(impl->wake_, Event::Create());
  SYRTOS_RETURN_IF_ERROR(impl->Watch(EPOLL_CTL_ADD, impl->wake_->fd(), kWakeId, EPOLLIN));
  SYRTOS_RETURN_IF_ERROR(impl->Watch(EPOLL_CTL_ADD, impl->listener_.fd(), kListenerId, EPOLLIN));
  SYRTOS_ASSIGN_OR_RETURN(impl->thread_,
                          Thread::Start("syrtos-store", [server = impl.get()] { server->Run(); }));
  return impl;
}

TcpStoreServer::Impl::~Impl() {
  // In a forked child there is no thread to stop, and the descriptor may be somebody else's.
  if (wake_ && fork_generation_ == ForkGeneration()) wake_->Set();
}

Status TcpStoreServer::Impl::Watch(int operation, int fd, uint64_t id, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (epoll_ctl(epoll_.fd(), operation, fd, &event) == 0) return Status::Ok();
  return Status::Internal("the store's server cannot watch a descriptor: " + ErrnoText(errno));
}

void TcpStoreServer::Impl::Run() {
  std::array<epoll_event, 64> events;
  while (true) {
    const int n = epoll_wait(epoll_.fd(), events.data(), events.size(), NextTimeout());
    if (n < 0 && errno != EINTR) {
      SYRTOS_LOG(kError, "store") << "the store's server stops: " << ErrnoText(errno);
      break;
    }
    for (int i = 0; i < n; ++i) {
      if (events[i].data.u64 == kWakeId) return;  // clients' connections close in the destructor
      HandleEvents(events[i].data.u64, events[i].events);
    }
    ExpireWaits();
    ResumeAcceptingIfDue();
  }
  clients_.clear();  // waiting clients learn that nobody will answer
}

int TcpStoreServer::Impl::NextTimeout() const {
  std::optional<Deadline> next = accept_again_;
  if (!wait_deadlines_.empty()) {
    const Deadline first = wait_deadlines_.begin()->first;
    next = next ? std::min(*next, first) : first;
  }
  return next ? PollTimeout(*next) : -1;
}

void TcpStoreServer::Impl::HandleEvents(uint64_t id, uint32_t events) {
  if (id == kListenerId) return AcceptClients();
  Client* client = Find(id);
  if (client == nullptr) return;  // dropped by an earlier event of this round
  if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) {
    const Status flushed = client->channel.Flush();
    if (!flushed.ok()) return Drop(*client, flushed);
  }
  ServeClient(id);
}

void TcpStoreServer::Impl::AcceptClients() {
  while (true) {
    Result<Socket> socket = listener_.Accept(Seconds(0));
    if (!socket.ok()) {
      if (socket.status().code() != StatusCode::kTimeout) PauseAccepting(socket.status());
      return;
    }
    const uint64_t id = next_id_++;
    const int fd = socket->fd();
    clients_.emplace(
        id, Client{id, Channel(std::move(socket).value(), kMaxStoreFrameBytes), EPOLLIN, {}});
    const Status watched = Watch(EPOLL_CTL_ADD, fd, id, EPOLLIN);
    if (!watched.ok()) Drop(*Find(id), watched);
  }
}

// Out of descriptors or memory: the connection stays in the queue and would wake us again at once.
void TcpStoreServer::Impl::PauseAccepting(const Status& cause) {
  SYRTOS_LOG(kWarning, "store") << cause.message() << "; trying again in "
                                << SecondsText(kAcceptPause);
  const Status unwatched = Watch(EPOLL_CTL_MOD, listener_.fd(), kListenerId, 0);
  if (!unwatched.ok()) SYRTOS_LOG(kError, "store") << unwatched.message();
  accept_again_ = DeadlineAfter(kAcceptPause);
}

void TcpStoreServer::Impl::ResumeAcceptingIfDue() {
  if (!accept_again_ || Remaining(*accept_again_).count() > 0) return;
  accept_again_.reset();
  const Status watched = Watch(EPOLL_CTL_MOD, listener_.fd(), kListenerId, EPOLLIN);
  if (!watched.ok()) SYRTOS_LOG(kError, "store") << watched.message();
}

TcpStoreServer::Impl::Client* TcpStoreServer::Impl::Find(uint64_t id) {
  const auto found = clients_.find(id);
  return found == clients_.end() ? nullptr : &found->second;
}

// Executes what has arrived. While an answer is not wholly sent the client is not read any further,
// so one that asks without reading fills its own socket and not our memory.
void TcpStoreServer::Impl::ServeClient(uint64_t id) {
  Client* client = nullptr;
  while ((client = Find(id)) != nullptr && !client->channel.wants_write()) {
    Result<std::optional<std::string>> message = client->channel.Receive();
    if (!message.ok()) return Drop(*client, message.status());
    if (!message->has_value()) break;
    if (client->wait)
      return Drop(*client, Status::Internal("a request came before the last answer"));
    Result<StoreRequest> request = DecodeStoreRequest(**message);
    if (!request.ok()) return Drop(*client, request.status());
    Execute(*client, std::move(request).value());
  }
  if (client == nullptr) return;
  const uint32_t events = client->channel.wants_write() ? EPOLLOUT : EPOLLIN;
  if (events == client->watched) return;
  client->watched = events;
  const Status watched = Watch(EPOLL_CTL_MOD, client->channel.fd(), id, events);
  if (!watched.ok()) Drop(*client, watched);
}

// `client` may be gone afterwards.
void TcpStoreServer::Impl::Execute(Client& client, StoreRequest request) {
  switch (request.op) {
    case StoreOp::kSet:
      values_[request.key] = std::move(request.value);
      Answer(client, std::string());
      WakeWaiters(request.key);
      break;
    case StoreOp::kGet:
      GetOrWait(client, request);
      break;
    case StoreOp::kAdd: {
      const Result<int64_t> sum = AddToCounter(values_, request.key, request.delta);
      if (!sum.ok()) return Answer(client, sum.status());
      Answer(client, std::to_string(*sum));
      WakeWaiters(request.key);
      break;
    }
    case StoreOp::kRemove:
      values_.erase(request.key);
      Answer(client, std::string());
      break;
  }
}

void TcpStoreServer::Impl::GetOrWait(Client& client, const StoreRequest& request) {
  const auto found = values_.find(request.key);
  if (found != values_.end()) return Answer(client, found->second);
  if (!(request.timeout.count() > 0))
    return Answer(client, KeyNotSet(request.key, request.timeout));
  const Deadline deadline = DeadlineAfter(request.timeout);
  client.wait = Wait{request.key, request.timeout, deadline};
  waiters_[request.key].insert(client.id);
  wait_deadlines_.emplace(deadline, client.id);
}

void TcpStoreServer::Impl::WakeWaiters(const std::string& key) {
  const auto found = waiters_.find(key);
  if (found == waiters_.end()) return;
  const std::set<uint64_t> ids = found->second;  // EndWait takes the entry away
  for (uint64_t id : ids) {
    Client* client = Find(id);
    if (client == nullptr) continue;
    EndWait(*client);
    Answer(*client, values_[key]);
  }
}

void TcpStoreServer::Impl::ExpireWaits() {
  while (!wait_deadlines_.empty() && Remaining(wait_deadlines_.begin()->first).count() <= 0) {
    Client& client = *Find(wait_deadlines_.begin()->second);
    const Status late = KeyNotSet(client.wait->key, client.wait->timeout);
    EndWait(client);
    Answer(client, late);
  }
}

void TcpStoreServer::Impl::EndWait(Client& client) {
  if (!client.wait) return;
  const auto found = waiters_.find(client.wait->key);
  found->second.erase(client.id);
  if (found->second.empty()) waiters_.erase(found);
  wait_deadlines_.erase({client.wait->deadline, client.id});
  client.wait.reset();
}

// `client` may be gone afterwards.
void TcpStoreServer::Impl::Answer(Client& client, const Result<std::string>& answer) {
  const Status sent = client.channel.Send(EncodeStoreAnswer(answer));
  if (!sent.ok()) return Drop(client, sent);
  if (!client.channel.wants_write() || client.watched == EPOLLOUT) return;
  client.watched = EPOLLOUT;
  const Status watched = Watch(EPOLL_CTL_MOD, client.channel.fd(), client.id, EPOLLOUT);
  if (!watched.ok()) Drop(client, watched);
}

void TcpStoreServer::Impl::Drop(Client& client, const Status& cause) {
  // To leave is normal; anything else is worth a line.
  if (cause.code() == StatusCode::kPeerLost) {
    SYRTOS_LOG(kDebug, "store") << "a client left: " << cause.message();
  } else {
    SYRTOS_LOG(kWarning, "store") << "dropped the client " << client.channel.peer() << ": "
                                  << cause.message();
  }
  EndWait(client);
  // Explicitly, for closing alone is not enough while a forked process holds a copy.
  epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, client.channel.fd(), nullptr);
  clients_.erase(client.id);
}

Result<std::unique_ptr<TcpStoreServer>> TcpStoreServer::Create(const std::string& address,
                                                               int port) {
  SYRTOS_ASSIGN_OR_RETURN(std::unique_ptr<Impl> impl, Impl::Create(address, port));
  return std::unique_ptr<TcpStoreServer>(new TcpStoreServer(std::move(impl)));
}

TcpStoreServer::TcpStoreServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

TcpStoreServer::~TcpStoreServer() = default;

int TcpStoreServer::port() const { return impl_->port(); }

}  // namespace syrtos
