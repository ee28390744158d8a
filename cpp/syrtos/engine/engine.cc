#include "syrtos/engine/engine.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "syrtos/base/fork_guard.h"
#include "syrtos/base/log.h"
#include "syrtos/engine/bootstrap.h"
#include "syrtos/engine/loop.h"
#include "syrtos/engine/progress.h"
#include "syrtos/engine/validate.h"

namespace syrtos {

// The public face: checks what this rank can see by itself, and owns loop, baton and thread.
class Engine::Impl {
 public:
  Impl(const Config& config, World world)
      : config_(config), fork_generation_(ForkGeneration()), loop_(config_, std::move(world)) {}

  Status Start() {
    SYRTOS_RETURN_IF_ERROR(loop_.Start());
    // Before the engine thread: a faster rank's first request may have come already.
    if (!config_.timeline_path.empty()) {
      Status traced = StartTimeline(config_.timeline_path, config_.timeline_mark_cycles);
      // A trace is not worth a training run.
      if (!traced.ok()) {
        SYRTOS_LOG(kWarning, "timeline") << traced.message() << " The run goes on without it.";
      }
    }
    return progress_.Start(loop_);
  }

  Status StartTimeline(const std::string& path, bool mark_cycles) {
    SYRTOS_RETURN_IF_ERROR(CheckProcess());
    const std::string file = Timeline::FileOf(path, config_.rank);
    if (file.empty()) return Status::Ok();
    return loop_.timeline().Start(file, config_.rank, mark_cycles);
  }

  Status CheckProcess() const {
    if (ForkGeneration() == fork_generation_) return Status::Ok();
    return Status::NotInitialized(
        "Syrtos was initialised in the parent of this forked process and cannot be used here. Call "
        "collectives in the parent only, or start workers with the spawn method.");
  }

  Result<std::shared_ptr<Completion>> Submit(Request request) {
    SYRTOS_RETURN_IF_ERROR(CheckProcess());
    SYRTOS_RETURN_IF_ERROR(CheckLocally(request));
    for (auto& part : request.meta.parts) {
      if (part.dtype != DType::kOpaque)
        part.item_bytes = static_cast<uint32_t>(InfoOf(part.dtype).bytes);
    }
    auto pending = std::make_shared<PendingRequest>();
    auto completion = std::make_shared<Completion>();
    completion->mutable_results().resize(request.meta.parts.size());
    request.completion = completion;
    pending->request = std::move(request);
    SYRTOS_RETURN_IF_ERROR(loop_.queue().Push(std::move(pending)));
    progress_.Wake();
    return completion;
  }

  Status CheckLocally(const Request& request) const {
    const RequestMeta& meta = request.meta;
    auto ranks = loop_.groups().Ranks(meta.key.group);
    if (ranks.empty()) {
      return Status::InvalidArgument(Describe(meta.kind, meta.key) + ": there is no process set " +
                                     std::to_string(meta.key.group) +
                                     "; it was never added, or has been removed.");
    }
    if (std::find(ranks.begin(), ranks.end(), config_.rank) == ranks.end()) {
      return Status::InvalidArgument(Describe(meta.kind, meta.key) + ": rank " +
                                     std::to_string(config_.rank) + " is not in process set " +
                                     std::to_string(meta.key.group) +
                                     "; only its members may call it.");
    }
    if (InfoOf(meta.kind).moves_data && meta.parts.empty()) {
      return Status::InvalidArgument(Describe(meta.kind, meta.key) + ": no tensors were given.");
    }
    for (const PartMeta& part : meta.parts) {
      auto count = ElementCount(part.shape);
      if (!count.ok()) return count.status().WithPrefix(Describe(meta.kind, meta.key) + ": ");
    }
    return Status::Ok();
  }

  void Close() {
    if (!CheckProcess().ok() || closed_.exchange(true)) return;
    loop_.queue().Close(Status::Shutdown(
        "Syrtos has been shut down in this process; call init() before further collectives."));
    progress_.Close();
    loop_.timeline().Stop();
  }

  const Config config_;
  const uint64_t fork_generation_;
  std::atomic<bool> closed_{false};
  Loop loop_;
  Progress progress_;  // destroyed first: its thread uses the loop
};

Result<std::unique_ptr<Engine>> Engine::Create(const Config& config, std::shared_ptr<Store> store,
                                               const std::vector<BackendFactory>* backends) {
  SYRTOS_ASSIGN_OR_RETURN(
      World world, JoinWorld(config, std::move(store), backends ? *backends : BuiltinBackends()));
  auto impl = std::make_unique<Impl>(config, std::move(world));
  SYRTOS_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Engine::~Engine() {
  if (!impl_->CheckProcess().ok()) {
    // The threads stayed in the parent; there is nothing here that could be joined or closed.
    [[maybe_unused]] Impl* kept = impl_.release();
    return;
  }
  Close();
}

Result<std::shared_ptr<Completion>> Engine::Submit(Request request) {
  return impl_->Submit(std::move(request));
}

bool Engine::Wait(const Completion& completion, std::chrono::nanoseconds timeout) {
  if (!impl_->CheckProcess().ok()) return completion.done();
  return impl_->progress_.WaitFor(completion, timeout);
}

std::vector<int32_t> Engine::GroupRanks(uint32_t group) const {
  return impl_->loop_.groups().Ranks(group);
}

std::vector<uint32_t> Engine::Groups() const { return impl_->loop_.groups().Ids(); }

std::vector<std::string> Engine::Backends() const { return impl_->loop_.BackendNames(); }

Status Engine::StartTimeline(const std::string& path, bool mark_cycles) {
  return impl_->StartTimeline(path, mark_cycles);
}

Status Engine::StopTimeline() {
  SYRTOS_RETURN_IF_ERROR(impl_->CheckProcess());
  impl_->loop_.timeline().Stop();
  return Status::Ok();
}

void Engine::Close() { impl_->Close(); }

void Engine::Abort(const Status& cause) {
  if (impl_->CheckProcess().ok()) impl_->loop_.ReportFailure(cause);
}

Status Engine::health() const {
  SYRTOS_RETURN_IF_ERROR(impl_->CheckProcess());
  return impl_->loop_.cause();
}

const Config& Engine::config() const { return impl_->config_; }

Engine::Counters Engine::counters() const { return impl_->loop_.counters(); }

}  // namespace syrtos
