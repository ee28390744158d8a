#include "framework_ops/tensorflow/attributes.h"

#include <cstring>

namespace syrtos_tf {
namespace {

// Reads one attribute after the other; after a failure the others are skipped.
class Reader {
 public:
  explicit Reader(TF_OpKernelConstruction* construction) : construction_(construction) {}

  int64_t Int(const char* name) {
    int64_t value = 0;
    if (status_.ok()) {
      tf_.TF_OpKernelConstruction_GetAttrInt64(construction_, name, &value, status_.get());
    }
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
    const auto [items, bytes] = Size(name);
    std::string value(status_.ok() ? static_cast<size_t>(bytes) : 0, '\0');
    if (!value.empty()) {
      tf_.TF_OpKernelConstruction_GetAttrString(construction_, name, value.data(), value.size(),
                                                status_.get());
    }
    return value;
  }

  std::vector<std::string> Strings(const char* name) {
    const auto [items, bytes] = Size(name);
    if (!status_.ok() || items <= 0) return {};
    std::vector<char*> starts(static_cast<size_t>(items));
    std::vector<size_t> lengths(static_cast<size_t>(items));
    std::string storage(static_cast<size_t>(bytes), '\0');
    tf_.TF_OpKernelConstruction_GetAttrStringList(construction_, name, starts.data(),
                                                  lengths.data(), items, storage.data(),
                                                  storage.size(), status_.get());
    std::vector<std::string> values;
    for (size_t i = 0; status_.ok() && i < starts.size(); ++i) {
      values.emplace_back(starts[i], lengths[i]);
    }
    return values;
  }

  // False once anything has failed.
  bool Report() {
    if (!status_.ok()) tf_.TF_OpKernelConstruction_Failure(construction_, status_.get());
    return status_.ok();
  }

 private:
  struct AttributeSize {
    int32_t items = 0;
    int32_t bytes = 0;
  };

  AttributeSize Size(const char* name) {
    AttributeSize size;
    if (status_.ok()) {
      tf_.TF_OpKernelConstruction_GetAttrSize(construction_, name, &size.items, &size.bytes,
                                              status_.get());
    }
    return size;
  }

  const TfSymbols& tf_ = Tf();
  TF_OpKernelConstruction* construction_;
  TfStatus status_;
};

}  // namespace

void DeclareAttributes(TF_OpDefinitionBuilder* builder) {
  // TensorFlow's float attributes have 32 bits and would round a scale of 1/3, so the scales are
  // integers that hold the bits of a double: exact, and free of any locale. The default is 1.0.
  constexpr const char* kAttributes[] = {
      "op_name: string = ''",
      "tensor_names: list(string) = []",
      "group: int = 0",
      "op: int = 1",
      "prescale_bits: int = 4607182418800017408",
      "postscale_bits: int = 4607182418800017408",
      "root: int = 0",
  };
  for (const char* attribute : kAttributes) {
    Tf().TF_OpDefinitionBuilderAddAttr(builder, attribute);
  }
}

std::optional<Attributes> ReadAttributes(TF_OpKernelConstruction* construction) {
  Reader reader(construction);
  Attributes attributes;
  attributes.op_name = reader.String("op_name");
  attributes.tensor_names = reader.Strings("tensor_names");
  attributes.group = static_cast<uint32_t>(reader.Int("group"));
  attributes.op = static_cast<int32_t>(reader.Int("op"));
  attributes.prescale = reader.Double("prescale_bits");
  attributes.postscale = reader.Double("postscale_bits");
  attributes.root = static_cast<int32_t>(reader.Int("root"));
  if (!reader.Report()) return std::nullopt;
  return attributes;
}

std::optional<uint32_t> ReadGroup(TF_OpKernelConstruction* construction) {
  Reader reader(construction);
  const auto group = static_cast<uint32_t>(reader.Int("group"));
  if (!reader.Report()) return std::nullopt;
  return group;
}

}  // namespace syrtos_tf
