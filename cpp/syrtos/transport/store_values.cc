#include "syrtos/transport/store_values.h"

#include <charconv>

#include "syrtos/base/deadline.h"

namespace syrtos {

Result<int64_t> AddToCounter(std::map<std::string, std::string>& values, const std::string& key,
                             int64_t delta) {
  int64_t number = 0;
  const auto found = values.find(key);
  if (found != values.end()) {
    const std::string& text = found->second;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc() || stop != end) {
      return Status::InvalidArgument("cannot add to the key \"" + key +
                                     "\" of the store: its value is not a number");
    }
  }
  if (__builtin_add_overflow(number, delta, &number)) {
    return Status::InvalidArgument("adding " + std::to_string(delta) + " to the key \"" + key +
                                   "\" of the store goes beyond 64 bits");
  }
  values[key] = std::to_string(number);
  return number;
}

Status KeyNotSet(const std::string& key, Seconds waited) {
  return Status::Timeout("nobody has set the key \"" + key + "\" of the store within " +
                         SecondsText(waited));
}

}  // namespace syrtos
