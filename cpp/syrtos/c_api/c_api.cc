#include "syrtos/c_api.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "syrtos/base/mutex.h"
#include "syrtos/c_api/current_engine.h"

namespace syrtos {
namespace {

// The one process-wide slot: a framework's kernel has no way to carry an engine (ADR 0005).
struct Slot {
  Mutex mutex;
  std::shared_ptr<Engine> engine GUARDED_BY(mutex);
};

Slot& TheSlot() {
  static Slot* slot = new Slot;  // never destroyed: kernels may outlive static destruction
  return *slot;
}

int32_t Refuse(const Status& status, char* error, size_t error_size) {
  if (error != nullptr && error_size > 0) {
    std::snprintf(error, error_size, "%s", status.message().c_str());
  }
  return static_cast<int32_t>(status.code());
}

Status CheckNumbers(const SyrtosRequest& r) {
  if (r.kind < 0 || r.kind > 255 || !IsValidCollectiveKind(static_cast<uint8_t>(r.kind))) {
    return Status::InvalidArgument("unknown collective kind " + std::to_string(r.kind));
  }
  if (r.op < 0 || r.op > 255 || !IsValidReduceOp(static_cast<uint8_t>(r.op))) {
    return Status::InvalidArgument("unknown reduce op " + std::to_string(r.op));
  }
  for (int32_t i = 0; i < r.num_parts; ++i) {
    int32_t dtype = r.parts[i].dtype;
    if (dtype < 0 || dtype > 255 || !IsValidDType(static_cast<uint8_t>(dtype))) {
      return Status::InvalidArgument("unknown dtype number " + std::to_string(dtype));
    }
  }
  return Status::Ok();
}

PartMeta MakePart(const SyrtosPart& p) {
  PartMeta meta;
  meta.name = p.name == nullptr ? "" : p.name;
  meta.dtype = static_cast<DType>(p.dtype);
  meta.item_bytes =
      meta.dtype == DType::kOpaque ? p.item_bytes : static_cast<uint32_t>(InfoOf(meta.dtype).bytes);
  meta.shape.assign(p.dims, p.dims + p.ndim);
  meta.splits.assign(p.splits, p.splits + p.num_splits);
  return meta;
}

Request MakeRequest(const SyrtosRequest& r) {
  Request request;
  request.meta.kind = static_cast<CollectiveKind>(r.kind);
  request.meta.key.group = r.group;
  request.meta.key.name = r.name == nullptr ? "" : r.name;
  request.meta.op = static_cast<ReduceOp>(r.op);
  request.meta.prescale = r.prescale;
  request.meta.postscale = r.postscale;
  request.meta.root = r.root;
  for (int32_t i = 0; i < r.num_parts; ++i) {
    request.meta.parts.push_back(MakePart(r.parts[i]));
    request.memory.push_back({r.parts[i].input, r.parts[i].output});
  }
  if (r.allocate != nullptr) {
    request.allocate = [allocate = r.allocate, user = r.user](size_t part,
                                                              const Shape& shape) -> Result<void*> {
      void* memory = allocate(user, static_cast<int32_t>(part), shape.data(),
                              static_cast<int32_t>(shape.size()));
      if (memory == nullptr) {
        return Status::Internal("the framework could not allocate an output of shape " +
                                ShapeToString(shape));
      }
      return memory;
    };
  }
  request.callback = [done = r.done, received = r.received, user = r.user](const Completion& c) {
    Status status = c.status();
    if (status.ok() && received != nullptr) {
      for (size_t i = 0; i < c.results().size(); ++i) {
        const auto& splits = c.results()[i].received_splits;
        received(user, static_cast<int32_t>(i), splits.data(), static_cast<int32_t>(splits.size()));
      }
    }
    done(user, static_cast<int32_t>(status.code()), status.message().c_str());
  };
  return request;
}

int32_t Submit(const SyrtosRequest* request, char* error, size_t error_size) {
  std::shared_ptr<Engine> engine = CurrentEngine();
  if (engine == nullptr) {
    return Refuse(Status::NotInitialized("Syrtos has no engine in this process: call init() first "
                                         "(and again after shutdown())"),
                  error, error_size);
  }
  Status numbers = CheckNumbers(*request);
  if (!numbers.ok()) return Refuse(numbers, error, error_size);
  auto submitted = engine->Submit(MakeRequest(*request));
  return submitted.ok() ? 0 : Refuse(submitted.status(), error, error_size);
}

int32_t Rank() {
  auto engine = CurrentEngine();
  return engine == nullptr ? -1 : engine->config().rank;
}

int32_t Size() {
  auto engine = CurrentEngine();
  return engine == nullptr ? -1 : engine->config().size;
}

int32_t GroupSize(uint32_t group) {
  auto engine = CurrentEngine();
  if (engine == nullptr) return -1;
  auto ranks = engine->GroupRanks(group);
  return ranks.empty() ? -1 : static_cast<int32_t>(ranks.size());
}

int32_t GroupRank(uint32_t group) {
  auto engine = CurrentEngine();
  if (engine == nullptr) return -1;
  auto ranks = engine->GroupRanks(group);
  auto found = std::find(ranks.begin(), ranks.end(), engine->config().rank);
  return found == ranks.end() ? -1 : static_cast<int32_t>(found - ranks.begin());
}

}  // namespace

void SetCurrentEngine(std::shared_ptr<Engine> engine) {
  Slot& slot = TheSlot();
  std::shared_ptr<Engine> old;  // destroyed outside the lock
  MutexLock lock(slot.mutex);
  old = std::exchange(slot.engine, std::move(engine));
}

std::shared_ptr<Engine> CurrentEngine() {
  Slot& slot = TheSlot();
  MutexLock lock(slot.mutex);
  return slot.engine;
}

}  // namespace syrtos

extern "C" const SyrtosApi* syrtos_api(uint32_t version) {
  static const SyrtosApi api = {SYRTOS_C_API_VERSION, sizeof(SyrtosApi), syrtos::Submit,
                                syrtos::Rank,         syrtos::Size,      syrtos::GroupSize,
                                syrtos::GroupRank};
  return version == SYRTOS_C_API_VERSION ? &api : nullptr;
}
