#include "syrtos/collectives/backend_registry.h"

#include <utility>

namespace syrtos {

void BackendRegistry::Add(std::unique_ptr<Communicator> communicator) {
  communicators_.push_back(std::move(communicator));
}

Result<int> BackendRegistry::Choose(const Collective& collective, int64_t bytes) const {
  int best = -1;
  int best_score = 0;
  std::string names;
  for (int i = 0; i < size(); ++i) {
    const int score = at(i).Score(collective, bytes);
    if (score > best_score) {
      best = i;
      best_score = score;
    }
    names += names.empty() ? "" : ", ";
    names += at(i).name();
  }
  if (best >= 0) return best;
  const CollectiveInfo& info = InfoOf(collective.kind);
  std::string what = info.name;
  if (info.reduces) what += std::string(" with op=") + ReduceOpName(collective.op);
  return Status::BackendUnavailable(
      "no backend can do " + what + " of dtype " + InfoOf(collective.dtype).name + " among " +
      std::to_string(collective.size()) +
      " ranks; this engine has: " + (names.empty() ? "none" : names) +
      ". Run `syrtos doctor` on every host to see which backends are missing and why.");
}

bool BackendRegistry::AnyMayBlock() const {
  for (const std::unique_ptr<Communicator>& communicator : communicators_) {
    if (communicator->may_block()) return true;
  }
  return false;
}

void BackendRegistry::AbortAll(const Status& cause) {
  for (const std::unique_ptr<Communicator>& communicator : communicators_)
    communicator->Abort(cause);
}

}  // namespace syrtos
