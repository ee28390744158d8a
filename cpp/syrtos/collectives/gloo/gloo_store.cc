#include "syrtos/collectives/gloo/gloo_store.h"

#include <algorithm>
#include <utility>

namespace syrtos {

GlooStore::GlooStore(syrtos::Store& store, std::string prefix,
                     std::chrono::steady_clock::time_point deadline)
    : store_(&store), prefix_(std::move(prefix)), deadline_(deadline) {}

syrtos::Store& GlooStore::store() {
  if (store_ == nullptr)
    throw StoreFailure(Status::Internal("Gloo used its store after the start"));
  return *store_;
}

void GlooStore::set(const std::string& key, const std::vector<char>& data) {
  const Status status = store().Set(prefix_ + key, std::string(data.begin(), data.end()));
  if (!status.ok()) throw StoreFailure(status);
  own_keys_.push_back(prefix_ + key);
}

std::string GlooStore::Fetch(const std::string& key) {
  const Seconds left = deadline_ - std::chrono::steady_clock::now();
  Result<std::string> value = store().Get(prefix_ + key, std::max(left, Seconds(0)));
  if (value.ok()) return std::move(value).value();
  // Gloo's keys end in the number of the rank that publishes them: "1", "rank_1".
  const size_t digits = key.find_last_not_of("0123456789") + 1;
  throw StoreFailure(
      value.status().WithPrefix("waiting for the address of rank " + key.substr(digits) + ": "));
}

std::vector<char> GlooStore::get(const std::string& key) {
  const std::string value = Fetch(key);
  return std::vector<char>(value.begin(), value.end());
}

void GlooStore::wait(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) Fetch(key);
}

void GlooStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) {
  wait(keys);
}

void GlooStore::RemoveOwnKeys() {
  // A key that stays behind costs a few bytes and does no harm.
  for (const std::string& key : own_keys_) static_cast<void>(store().Remove(key));
  own_keys_.clear();
}

}  // namespace syrtos
