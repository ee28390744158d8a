// What a communicator is doing at the moment, for whoever draws a trace. An observer: never steers.
#pragma once

#include <string>
#include <string_view>

#include "syrtos/collectives/collective.h"

namespace syrtos {

// Told by the thread that drives the operation. Begin and End come in pairs and may be nested; an
// operation that fails may leave some open.
class Activities {
 public:
  virtual ~Activities() = default;
  virtual void Begin(const std::string& name) = 0;
  virtual void End() = 0;
};

// "reducescatter" -> "REDUCESCATTER"; dashes are dropped.
std::string UpperName(std::string_view name);
// What a trace calls the work of a communicator: "GLOO_ALLREDUCE", "GLOO_ADASUM_ALLREDUCE",
// "GLOO_BCAST".
std::string ActivityName(std::string_view communicator, const Collective& collective);

// An activity for as long as the object lives. Costs nothing if nobody listens.
class ActivityScope {
 public:
  ActivityScope(const Collective& collective, const char* name) : told_(collective.activities) {
    if (told_ != nullptr) told_->Begin(name);
  }
  // The work itself of `communicator`.
  ActivityScope(std::string_view communicator, const Collective& collective)
      : told_(collective.activities) {
    if (told_ != nullptr) told_->Begin(ActivityName(communicator, collective));
  }
  ~ActivityScope() {
    if (told_ != nullptr) told_->End();
  }
  ActivityScope(const ActivityScope&) = delete;
  ActivityScope& operator=(const ActivityScope&) = delete;

 private:
  Activities* const told_;
};

}  // namespace syrtos
