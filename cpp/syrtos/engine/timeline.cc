#include "syrtos/engine/timeline.h"

#include <cstdio>
#include <utility>

#include "syrtos/collectives/activities.h"

namespace syrtos {
namespace {

constexpr char kRankMark[] = "{rank}";

std::string Quoted(const char* key, const std::string& value) {
  return JsonString(key) + ":" + JsonString(value);
}

std::string DescribeParts(const RequestMeta& meta) {
  if (meta.parts.empty()) return "";
  if (meta.parts.size() > 1) return "\"tensors\":" + std::to_string(meta.parts.size());
  const PartMeta& part = meta.parts.front();
  return Quoted("dtype", InfoOf(part.dtype).name) + "," +
         Quoted("shape", ShapeToString(part.shape));
}

// "allreduce.grad/kernel": as Horovod calls it.
std::string LabelOf(CollectiveKind kind, const RequestKey& key) {
  const std::string prefix = std::string(InfoOf(kind).name) + ".";
  std::string label = key.name.empty() ? "noname" : key.name;
  if (label.compare(0, prefix.size(), prefix) != 0) label.insert(0, prefix);
  if (key.group != kWorldGroup) label += " (process set " + std::to_string(key.group) + ")";
  return label;
}

}  // namespace

std::string Timeline::FileOf(const std::string& path, int rank) {
  const size_t mark = path.find(kRankMark);
  if (mark == std::string::npos) return rank == 0 ? path : "";
  std::string file = path;
  return file.replace(mark, sizeof kRankMark - 1, std::to_string(rank));
}

Status Timeline::Start(const std::string& path, int rank, bool mark_cycles) {
  const auto epoch = std::chrono::system_clock::now().time_since_epoch();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(epoch).count();
  MutexLock lock(mutex_);
  auto fresh = std::make_unique<TraceFile>();
  SYRTOS_RETURN_IF_ERROR(fresh->Open(
      path, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"name\":\"rank " +
                std::to_string(rank) + "\",\"rank\":" + std::to_string(rank) +
                ",\"start_time_since_epoch_in_micros\":" + std::to_string(micros) + "}}"));
  if (file_ != nullptr && file_->IsSameFileAs(*fresh)) file_->Abandon();
  Finish();
  file_ = std::move(fresh);
  begin_ = std::chrono::steady_clock::now();
  mark_cycles_ = mark_cycles;
  on_.store(true, std::memory_order_relaxed);
  return Status::Ok();
}

void Timeline::Stop() {
  MutexLock lock(mutex_);
  Finish();
  on_.store(false, std::memory_order_relaxed);
}

void Timeline::Posted(const RequestMeta& meta) {
  if (!on()) return;
  MutexLock lock(mutex_);
  static_cast<void>(Negotiating(meta.kind, meta.key));
}

void Timeline::RankReady(int rank, CollectiveKind kind, const RequestKey& key) {
  if (!on()) return;
  MutexLock lock(mutex_);
  const Track& track = Negotiating(kind, key);
  AppendLocked(Place(track, 'X') + ",\"dur\":0,\"name\":\"" + std::to_string(rank) + "\"}");
}

void Timeline::Agreed(const RequestMeta& meta) {
  if (!on()) return;
  MutexLock lock(mutex_);
  const auto found = negotiating_.find(meta.key);
  if (found == negotiating_.end()) return;  // posted before the start
  End(found->second);
  Track& track = agreed_[meta.key] = found->second;
  negotiating_.erase(found);
  if (!InfoOf(meta.kind).moves_data) return;
  Begin(track, UpperName(InfoOf(meta.kind).name), DescribeParts(meta));
  Begin(track, "QUEUE", "");
  track.queued = true;
}

void Timeline::AgreedByOthers(const RequestKey& key) {
  if (!on()) return;
  MutexLock lock(mutex_);
  const auto found = negotiating_.find(key);
  if (found != negotiating_.end()) Close(negotiating_, found);
}

void Timeline::ActivityBegin(const RequestKey& key, const std::string& name) {
  if (!on()) return;
  MutexLock lock(mutex_);
  const auto found = agreed_.find(key);
  if (found == agreed_.end()) return;
  if (std::exchange(found->second.queued, false)) End(found->second);
  Begin(found->second, name, "");
}

void Timeline::ActivityEnd(const RequestKey& key) {
  if (!on()) return;
  MutexLock lock(mutex_);
  const auto found = agreed_.find(key);
  if (found != agreed_.end() && found->second.open > 1) End(found->second);
}

void Timeline::Ended(const RequestKey& key) {
  if (!on()) return;
  MutexLock lock(mutex_);
  auto found = agreed_.find(key);
  if (found != agreed_.end()) return Close(agreed_, found);
  found = negotiating_.find(key);
  if (found != negotiating_.end()) Close(negotiating_, found);
}

void Timeline::Cycle() {
  if (!on()) return;
  MutexLock lock(mutex_);
  if (!mark_cycles_) return;
  char text[96];
  std::snprintf(text, sizeof text, R"({"name":"CYCLE_START","ph":"i","s":"g","pid":0,"ts":%.1f})",
                NowMicros());
  AppendLocked(text);
}

void Timeline::Flush() {
  if (!on()) return;
  MutexLock lock(mutex_);
  file_->Flush();
  if (!file_->is_open()) on_.store(false, std::memory_order_relaxed);
}

Timeline::Track& Timeline::Negotiating(CollectiveKind kind, const RequestKey& key) {
  const auto [found, fresh] = negotiating_.try_emplace(key);
  Track& track = found->second;
  if (!fresh) return track;
  track.row = &RowOf(kind, key);
  while (!track.row->lanes.insert(track.lane).second) ++track.lane;
  Begin(track, "NEGOTIATE_" + UpperName(InfoOf(kind).name), "");
  return track;
}

Timeline::Row& Timeline::RowOf(CollectiveKind kind, const RequestKey& key) {
  std::string label = LabelOf(kind, key);
  if (rows_.size() >= kMostNames && rows_.count(label) == 0) {
    label = std::string(InfoOf(kind).name) + ".(other names)";
  }
  const auto [found, fresh] = rows_.try_emplace(label);
  if (fresh) {
    found->second.pid = static_cast<int>(rows_.size());
    AppendLocked("{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":" +
                 std::to_string(found->second.pid) + ",\"args\":{" + Quoted("name", label) + "}}");
  }
  return found->second;
}

void Timeline::Begin(Track& track, const std::string& name, const std::string& args) {
  ++track.open;
  AppendLocked(Place(track, 'B') + ",\"name\":" + JsonString(name) +
               (args.empty() ? "}" : ",\"args\":{" + args + "}}"));
}

void Timeline::End(Track& track) {
  --track.open;
  AppendLocked(Place(track, 'E') + "}");
}

void Timeline::Close(Tracks& tracks, Tracks::iterator found) {
  Track& track = found->second;
  while (track.open > 0) End(track);
  track.row->lanes.erase(track.lane);
  tracks.erase(found);
}

std::string Timeline::Place(const Track& track, char phase) const {
  char text[112];
  std::snprintf(text, sizeof text, R"({"ph":"%c","pid":%d,"tid":%d,"ts":%.1f)", phase,
                track.row->pid, track.lane, NowMicros());
  return text;
}

void Timeline::AppendLocked(const std::string& event) {
  file_->Append(event);
  // After a failure nobody listens any more.
  if (!file_->is_open()) on_.store(false, std::memory_order_relaxed);
}

void Timeline::Finish() {
  while (!agreed_.empty()) Close(agreed_, agreed_.begin());
  while (!negotiating_.empty()) Close(negotiating_, negotiating_.begin());
  rows_.clear();
  if (file_ != nullptr) file_->Close();
}

double Timeline::NowMicros() const {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin_)
      .count();
}

}  // namespace syrtos
