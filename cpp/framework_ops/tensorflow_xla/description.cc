#include "framework_ops/tensorflow_xla/description.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

namespace syrtos_tf_xla {
namespace {

// Takes one word after the other; remembers that one was missing or of another form.
class Reader {
 public:
  Reader(const char* text, size_t length) : text_(text, length) {}

  int64_t Int() {
    const std::string word = Word();
    char* end = nullptr;
    const long long value = std::strtoll(word.c_str(), &end, 10);
    ok_ = ok_ && !word.empty() && *end == '\0';
    return ok_ ? value : 0;
  }

  // A count; bounded, so that a broken text cannot ask for all memory.
  size_t Count() {
    const int64_t value = Int();
    ok_ = ok_ && value >= 0 && value <= static_cast<int64_t>(text_.size());
    return ok_ ? static_cast<size_t>(value) : 0;
  }

  double Double() {
    const int64_t bits = Int();
    double value = 0.0;
    static_assert(sizeof(value) == sizeof(bits), "double has 64 bits");
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }

  std::string Text() {
    const std::string word = Word();
    if (word == "-") return {};
    std::string text;
    for (size_t i = 0; i + 1 < word.size(); i += 2) {
      const std::string byte = word.substr(i, 2);
      char* end = nullptr;
      text += static_cast<char>(std::strtol(byte.c_str(), &end, 16));
      ok_ = ok_ && *end == '\0';
    }
    ok_ = ok_ && !word.empty() && word.size() % 2 == 0;
    return text;
  }

  std::vector<int64_t> Dims() {
    std::vector<int64_t> dims(Count());
    for (int64_t& dim : dims) dim = Int();
    return dims;
  }

  bool ok() const { return ok_; }

 private:
  std::string Word() {
    const size_t begin = text_.find_first_not_of(' ', place_);
    if (begin == std::string::npos) return {};
    const size_t end = text_.find(' ', begin);
    place_ = end == std::string::npos ? text_.size() : end;
    return text_.substr(begin, place_ - begin);
  }

  const std::string text_;
  size_t place_ = 0;
  bool ok_ = true;
};

syrtos_xla::XlaBuffer BufferOf(int type, std::vector<int64_t>* dims) {
  syrtos_xla::XlaBuffer buffer = {};
  buffer.dtype = type;
  buffer.rank = static_cast<int64_t>(dims->size());
  buffer.dims = dims->data();
  return buffer;
}

}  // namespace

std::optional<Description> ReadDescription(const char* text, size_t length) {
  Reader reader(text, length);
  Description made;
  syrtos_xla::Attributes& attributes = made.attributes;
  attributes.kind = static_cast<syrtos_xla::Kind>(reader.Int());
  attributes.group = static_cast<uint32_t>(reader.Int());
  attributes.op = static_cast<int32_t>(reader.Int());
  attributes.prescale = reader.Double();
  attributes.postscale = reader.Double();
  attributes.root = static_cast<int32_t>(reader.Int());
  attributes.size = static_cast<int32_t>(reader.Int());
  attributes.position = static_cast<int32_t>(reader.Int());
  attributes.name = reader.Text();
  attributes.part_names = syrtos_xla::SplitNames(reader.Text());
  const size_t count = reader.Count();
  std::vector<int> types;
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    types.push_back(static_cast<int>(reader.Int()));
    made.dims.push_back(reader.Dims());
    made.dims.push_back(reader.Dims());
  }
  if (!reader.ok()) return std::nullopt;
  for (size_t i = 0; i < count; ++i) {
    made.inputs.push_back(BufferOf(types[i], &made.dims[2 * i]));
    made.outputs.push_back(BufferOf(types[i], &made.dims[2 * i + 1]));
  }
  return made;
}

}  // namespace syrtos_tf_xla
