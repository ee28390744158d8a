#include "syrtos/engine/liveness.h"

#include <algorithm>
#include <utility>

#include "syrtos/base/log.h"
#include "syrtos/transport/bytes.h"

namespace syrtos {

Result<std::unique_ptr<Liveness>> Liveness::Start(const Config& config, std::string own_name,
                                                  std::vector<Peer> peers,
                                                  std::function<void(const Status&)> on_cause) {
  SYRTOS_ASSIGN_OR_RETURN(Poller poller, Poller::Create());
  SYRTOS_ASSIGN_OR_RETURN(Event event, Event::Create());
  SYRTOS_RETURN_IF_ERROR(poller.Add(event.fd()));
  for (const Peer& peer : peers) SYRTOS_RETURN_IF_ERROR(poller.Add(peer.channel->fd()));
  std::unique_ptr<Liveness> liveness(new Liveness(config, std::move(own_name), std::move(peers),
                                                  std::move(on_cause), std::move(poller),
                                                  std::move(event)));
  Liveness* self = liveness.get();
  if (self->links_.empty()) return liveness;
  SYRTOS_ASSIGN_OR_RETURN(liveness->thread_,
                          Thread::Start("syrtos-health", [self] { self->Run(); }));
  return liveness;
}

namespace {

std::map<int, std::string> NamesOf(const std::vector<Peer>& peers) {
  std::map<int, std::string> names;
  for (const Peer& peer : peers) names[peer.rank] = peer.name;
  return names;
}

}  // namespace

Liveness::Liveness(const Config& config, std::string own_name, std::vector<Peer> peers,
                   std::function<void(const Status&)> on_cause, Poller poller, Event event)
    : config_(config),
      own_name_(std::move(own_name)),
      on_cause_(std::move(on_cause)),
      poller_(std::move(poller)),
      event_(std::move(event)),
      names_(NamesOf(peers)) {
  auto now = Clock::now();
  next_heartbeat_ = now;
  for (Peer& peer : peers) {
    Link link;
    link.peer = std::move(peer);
    link.last_heard = now;
    links_.push_back(std::move(link));
  }
}

Liveness::~Liveness() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  event_.Set();
  thread_.Join();
}

Status Liveness::cause() const {
  MutexLock lock(mutex_);
  return cause_;
}

void Liveness::Report(const Status& cause) {
  {
    MutexLock lock(mutex_);
    if (!cause_.ok()) return;
    cause_ = cause;
    reported_ = cause;
  }
  on_cause_(cause);
  event_.Set();
}

std::string Liveness::NameOf(int rank) const {
  auto found = names_.find(rank);
  return found == names_.end() ? "rank " + std::to_string(rank) : found->second;
}

void Liveness::Leave(Seconds timeout) {
  if (links_.empty()) return;
  auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout);
  {
    MutexLock lock(mutex_);
    leaving_ = true;
    event_.Set();
    while (!goodbye_done_ && !stop_) {
      if (!left_.WaitUntil(mutex_, deadline)) break;
    }
    stop_ = true;
  }
  event_.Set();
  thread_.Join();
}

void Liveness::Run() {
  for (;;) {
    auto now = Clock::now();
    auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(next_heartbeat_ - now) +
                std::chrono::milliseconds(1);
    poller_.Wait(std::max(wait, std::chrono::milliseconds(0)));
    event_.Clear();
    now = Clock::now();
    for (Link& link : links_) Read(link, now);
    Tick(now);
    FlushLinks();
    bool done = said_bye_ && GoodbyeDone();
    MutexLock lock(mutex_);
    if (done && !goodbye_done_) {
      goodbye_done_ = true;
      left_.NotifyAll();
    }
    if (stop_) return;
  }
}

void Liveness::Tick(Clock::time_point now) {
  Status own_report;
  bool leaving;
  {
    MutexLock lock(mutex_);
    own_report = reported_;
    leaving = leaving_;
  }
  if (!own_report.ok() && !told_) {
    told_ = true;
    SendToOthers(nullptr, Message::kAbort, own_report);
  }
  if (leaving && !said_bye_) {
    said_bye_ = true;
    SendToOthers(nullptr, Message::kBye);
  }
  if (now < next_heartbeat_) return;
  next_heartbeat_ = now + std::chrono::duration_cast<Clock::duration>(config_.heartbeat_interval);
  for (Link& link : links_) {
    if (!link.open || link.left) continue;
    Seconds silence = now - link.last_heard;
    if (silence > config_.peer_timeout) {
      End(link, "has been silent for " + std::to_string(static_cast<int>(silence.count())) +
                    " s (limit " + std::to_string(static_cast<int>(config_.peer_timeout.count())) +
                    " s): its host is down, unreachable or stopped");
      continue;
    }
    Send(link, Message::kHeartbeat);
  }
}

void Liveness::Read(Link& link, Clock::time_point now) {
  while (link.open) {
    auto message = link.peer.channel->Receive();
    if (!message.ok()) {
      End(link,
          "has died: its connection ended without a goodbye (" + message.status().message() + ")");
      return;
    }
    if (!*message) return;
    link.last_heard = now;
    Handle(link, **message);
  }
}

void Liveness::Handle(Link& link, const std::string& message) {
  ByteReader reader(message);
  auto kind = static_cast<Message>(reader.U8());
  switch (kind) {
    case Message::kHeartbeat:
      return;
    case Message::kBye:
      Send(link, Message::kByeSeen);
      link.left = true;
      return;
    case Message::kByeSeen:
      link.saw_bye = true;
      return;
    case Message::kAbort: {
      auto code = reader.U8();
      std::string text = reader.String();
      if (!reader.done() || code == 0 || code > static_cast<uint8_t>(StatusCode::kInternal)) return;
      SetCause(Status(static_cast<StatusCode>(code), text), &link);
      return;
    }
  }
}

void Liveness::End(Link& link, const std::string& why) {
  link.open = false;
  poller_.Remove(link.peer.channel->fd());
  link.peer.channel->Close();
  if (!link.left) SetCause(Status::PeerLost(link.peer.name + " " + why), &link);
}

void Liveness::SetCause(const Status& cause, const Link* from) {
  {
    MutexLock lock(mutex_);
    if (!cause_.ok() || leaving_) return;
    cause_ = cause;
  }
  SYRTOS_LOG(kDebug, "liveness") << cause.ToString();
  SendToOthers(from, Message::kAbort, cause);
  FlushLinks();
  on_cause_(cause);
}

void Liveness::Send(Link& link, Message kind, const Status& status) {
  if (!link.open) return;
  ByteWriter writer;
  writer.U8(static_cast<uint8_t>(kind));
  if (kind == Message::kAbort) {
    writer.U8(static_cast<uint8_t>(status.code()));
    writer.String(status.message());
  }
  // A failed write is not judged here: the read side sees the end of the channel and what came
  // before it.
  Status ignored = link.peer.channel->Send(writer.Take());
  static_cast<void>(ignored);
}

void Liveness::SendToOthers(const Link* except, Message kind, const Status& status) {
  for (Link& link : links_) {
    if (&link != except) Send(link, kind, status);
  }
}

void Liveness::FlushLinks() {
  for (Link& link : links_) {
    if (!link.open) continue;
    if (link.peer.channel->wants_write()) {
      Status ignored = link.peer.channel->Flush();
      static_cast<void>(ignored);
    }
    bool wants = link.peer.channel->wants_write();
    if (wants != link.write_watched) poller_.WatchWrite(link.peer.channel->fd(), wants);
    link.write_watched = wants;
  }
}

bool Liveness::GoodbyeDone() const {
  return std::all_of(links_.begin(), links_.end(),
                     [](const Link& link) { return !link.open || link.saw_bye || link.left; });
}

}  // namespace syrtos
