// What the engine does, as a trace in Chrome's format (a JSON array; opens in Perfetto). An
// observer: never steers.
//
// A tensor's name is a "process" of the trace, requests of one name that are in flight together are
// its "threads" 0, 1, ... In each, NEGOTIATE_<KIND> lasts from the first post to the agreement,
// with a tick for each rank that is ready (rank 0 knows them); then <KIND> until the request has
// ended, and in it QUEUE and what the communicators tell (activities.h). These spans nest. Times
// are microseconds since the file was begun; the first event has the time of that since 1970.
//
// Cost: one atomic read per event while it is off. On, events are formatted under the lock and
// written by Flush, which the engine calls before it sleeps or blocks. Memory: see TraceFile; names
// beyond kMostNames share one row per kind.
// Threads: any (one lock).
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "syrtos/base/mutex.h"
#include "syrtos/engine/messages.h"
#include "syrtos/engine/trace_file.h"

namespace syrtos {

class Timeline {
 public:
  static constexpr size_t kMostNames = 10000;

  // The file that `rank` writes if the user asks for `path`: its own one if "{rank}" stands in it;
  // else rank 0 writes `path` and the others nothing, "".
  static std::string FileOf(const std::string& path, int rank);

  ~Timeline() { Stop(); }
  // Ends the timeline that is being written, if any. On failure, which names the path, nothing has
  // changed.
  Status Start(const std::string& path, int rank, bool mark_cycles);
  void Stop();
  bool on() const { return on_.load(std::memory_order_relaxed); }

  // This rank has posted a request.
  void Posted(const RequestMeta& meta);
  // On rank 0: some rank's post has arrived.
  void RankReady(int rank, CollectiveKind kind, const RequestKey& key);
  // The agreement on a request of this rank is here, without error; its data wait for their turn.
  void Agreed(const RequestMeta& meta);
  // The same, where this rank has made no such request.
  void AgreedByOthers(const RequestKey& key);
  // Something is done for a request that was agreed on. Pairs, may be nested.
  void ActivityBegin(const RequestKey& key, const std::string& name);
  void ActivityEnd(const RequestKey& key);
  // A request of this rank has ended, however.
  void Ended(const RequestKey& key);
  // One turn of the loop in which something happened; drawn if mark_cycles was asked for.
  void Cycle();
  // Writes what is buffered.
  void Flush();

 private:
  struct Row {  // of one name
    int pid = 0;
    std::set<int> lanes;  // in use
  };
  struct Track {  // one request in flight
    Row* row = nullptr;
    int lane = 0;
    int open = 0;  // spans
    bool queued = false;
  };
  using Tracks = std::map<RequestKey, Track>;

  Track& Negotiating(CollectiveKind kind, const RequestKey& key) REQUIRES(mutex_);
  Row& RowOf(CollectiveKind kind, const RequestKey& key) REQUIRES(mutex_);
  void Begin(Track& track, const std::string& name, const std::string& args) REQUIRES(mutex_);
  void End(Track& track) REQUIRES(mutex_);
  void Close(Tracks& tracks, Tracks::iterator found) REQUIRES(mutex_);
  std::string Place(const Track& track, char phase) const REQUIRES(mutex_);
  void AppendLocked(const std::string& event) REQUIRES(mutex_);
  // Ends what is drawn: open spans would be taken to last for ever.
  void Finish() REQUIRES(mutex_);
  double NowMicros() const REQUIRES(mutex_);

  std::atomic<bool> on_{false};
  Mutex mutex_;
  std::unique_ptr<TraceFile> file_ GUARDED_BY(mutex_);  // null before the first start
  bool mark_cycles_ GUARDED_BY(mutex_) = false;
  std::chrono::steady_clock::time_point begin_ GUARDED_BY(mutex_);
  std::map<std::string, Row> rows_ GUARDED_BY(mutex_);  // by label
  // Apart, since a fast rank may post the next request of a name while this one still runs here.
  Tracks negotiating_ GUARDED_BY(mutex_);
  Tracks agreed_ GUARDED_BY(mutex_);
};

}  // namespace syrtos
