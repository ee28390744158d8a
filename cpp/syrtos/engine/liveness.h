// Who is alive: a small thread of its own, asleep in poll, that never holds the progress baton.
//
// Each rank keeps a health channel to rank 0 and sends a heartbeat over it; rank 0 passes on what
// concerns all. A channel that ends without a goodbye, or a rank silent for peer_timeout, is a lost
// peer. The first cause (anyone's) reaches every rank and stays. A rank that leaves says goodbye
// and waits for the answer, so its connections may then be closed without alarm.
//
// Owner: the engine. Threads: as marked. Failure: none of its own; it reports causes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "syrtos/base/config.h"
#include "syrtos/base/mutex.h"
#include "syrtos/base/thread.h"
#include "syrtos/transport/channel.h"
#include "syrtos/transport/poller.h"

namespace syrtos {

struct Peer {
  int rank = 0;
  std::string name;  // "rank 1 (node-a, pid 4711)"
  std::unique_ptr<Channel> channel;
};

class Liveness {
 public:
  using Clock = std::chrono::steady_clock;
  // `on_cause` is called once the cause is set (on the reporter's or the liveness thread); it must
  // only abort communicators and wake the loop. Without peers there is no thread.
  static Result<std::unique_ptr<Liveness>> Start(const Config& config, std::string own_name,
                                                 std::vector<Peer> peers,
                                                 std::function<void(const Status&)> on_cause);
  ~Liveness();

  // Any thread: the first fatal cause, Ok if none.
  Status cause() const;
  // Any thread: sets the cause (if there is none) and tells all ranks.
  void Report(const Status& cause);
  // Any thread: "rank 1 (node-a, pid 4711)" of a peer; "rank 2" where only rank 0 knows more.
  std::string NameOf(int rank) const;
  // Says goodbye and waits for the answers, at most `timeout`; then stops the thread. Idempotent.
  void Leave(Seconds timeout);

 private:
  enum class Message : uint8_t { kHeartbeat = 1, kBye = 2, kByeSeen = 3, kAbort = 4 };
  struct Link {
    Peer peer;
    Clock::time_point last_heard;
    bool open = true;
    bool left = false;     // said goodbye
    bool saw_bye = false;  // answered ours
    bool write_watched = false;
  };
  Liveness(const Config& config, std::string own_name, std::vector<Peer> peers,
           std::function<void(const Status&)> on_cause, Poller poller, Event event);
  void Run();
  void Tick(Clock::time_point now);
  void Read(Link& link, Clock::time_point now);
  void Handle(Link& link, const std::string& message);
  void End(Link& link, const std::string& why);
  void Send(Link& link, Message kind, const Status& status = Status());
  void SendToOthers(const Link* except, Message kind, const Status& status = Status());
  void SetCause(const Status& cause, const Link* from);
  void FlushLinks();
  bool GoodbyeDone() const;

  const Config config_;
  const std::string own_name_;
  const std::function<void(const Status&)> on_cause_;
  Poller poller_;
  Event event_;
  const std::map<int, std::string> names_;
  std::vector<Link> links_;  // liveness thread only
  bool said_bye_ = false;    // liveness thread only
  bool told_ = false;        // liveness thread only: our own report is sent
  Clock::time_point next_heartbeat_;

  mutable Mutex mutex_;
  CondVar left_;
  Status cause_ GUARDED_BY(mutex_);
  Status reported_ GUARDED_BY(mutex_);
  bool leaving_ GUARDED_BY(mutex_) = false;
  bool goodbye_done_ GUARDED_BY(mutex_) = false;
  bool stop_ GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace syrtos
