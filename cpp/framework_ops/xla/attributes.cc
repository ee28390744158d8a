#include "framework_ops/xla/attributes.h"

#include <cstring>
#include <string_view>

namespace syrtos_xla {
namespace {

// Looks attributes up by name; remembers the first that it did not find.
class Reader {
 public:
  explicit Reader(const XlaAttributes& from) : from_(from) {}

  int64_t Int(const char* name) {
    const auto* scalar = static_cast<const XlaScalar*>(Find(name, kXlaScalar));
    int64_t value = 0;
    if (scalar == nullptr) return 0;
    if (scalar->dtype != kXlaInt64Type) {
      missing_ = name;
      return 0;
    }
    std::memcpy(&value, scalar->value, sizeof(value));
    return value;
  }

  // A double kept as its bits.
  double Double(const char* name) {
    const int64_t bits = Int(name);
    double value = 0.0;
    static_assert(sizeof(value) == sizeof(bits), "double has 64 bits");
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }

  std::string String(const char* name) {
    const auto* span = static_cast<const XlaByteSpan*>(Find(name, kXlaString));
    return span == nullptr ? std::string() : std::string(span->data, span->size);
  }

  const char* missing() const { return missing_; }

 private:
  const void* Find(const char* name, int type) {
    for (int64_t i = 0; i < from_.size; ++i) {
      const XlaByteSpan& key = *from_.names[i];
      if (from_.types[i] == type && std::string_view(key.data, key.size) == name) {
        return from_.items[i];
      }
    }
    missing_ = name;
    return nullptr;
  }

  const XlaAttributes& from_;
  const char* missing_ = nullptr;
};

}  // namespace

const char* ReadAttributes(const XlaAttributes& from, Attributes* attributes) {
  Reader reader(from);
  attributes->kind = static_cast<Kind>(reader.Int("kind"));
  attributes->group = static_cast<uint32_t>(reader.Int("group"));
  attributes->op = static_cast<int32_t>(reader.Int("op"));
  attributes->prescale = reader.Double("prescale_bits");
  attributes->postscale = reader.Double("postscale_bits");
  attributes->root = static_cast<int32_t>(reader.Int("root"));
  attributes->size = static_cast<int32_t>(reader.Int("size"));
  attributes->position = static_cast<int32_t>(reader.Int("position"));
  attributes->name = reader.String("name");
  attributes->part_names = SplitNames(reader.String("part_names"));
  return reader.missing();
}

bool ReadGroup(const XlaAttributes& from, uint32_t* group) {
  Reader reader(from);
  *group = static_cast<uint32_t>(reader.Int("group"));
  return reader.missing() == nullptr;
}

std::vector<std::string> SplitNames(const std::string& joined) {
  constexpr char kSeparator = '\x1f';  // in no name
  std::vector<std::string> names;
  if (joined.empty()) return names;
  size_t begin = 0;
  for (;;) {
    const size_t end = joined.find(kSeparator, begin);
    names.push_back(joined.substr(begin, end - begin));
    if (end == std::string::npos) return names;
    begin = end + 1;
  }
}

}  // namespace syrtos_xla
