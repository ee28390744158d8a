#include "framework_ops/xla/call.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace syrtos_xla {
namespace {

// Stands for the memory of a tensor without elements, for which XLA may give a null pointer.
void* NotNull(void* data) {
  alignas(64) static char nothing[64];
  return data != nullptr ? data : nothing;
}

bool KeepsShape(Kind kind) { return kind == Kind::kAllreduce || kind == Kind::kBroadcast; }

std::string ShapeText(const int64_t* dims, size_t rank) {
  std::string text = "(";
  for (size_t d = 0; d < rank; ++d) text += (d > 0 ? ", " : "") + std::to_string(dims[d]);
  return text + (rank == 1 ? ",)" : ")");
}

// Buffers without XLA's tokens, which only give an order.
std::vector<const XlaBuffer*> Tensors(const XlaBuffers& buffers) {
  std::vector<const XlaBuffer*> tensors;
  for (int64_t i = 0; i < buffers.size; ++i) {
    const auto* buffer = static_cast<const XlaBuffer*>(buffers.items[i]);
    if (buffer->dtype != kXlaTokenType) tensors.push_back(buffer);
  }
  return tensors;
}

// Hands the number that gives calls their order on to the next one.
void HandOn(const XlaBuffer& input, const XlaBuffer& output) {
  if (output.data != input.data) std::memcpy(output.data, input.data, sizeof(int32_t));
}

}  // namespace

Call::Call(const Host& host, Attributes attributes)
    : host_(host), attributes_(std::move(attributes)) {}

Outcome Call::Take(const XlaBuffers& inputs, const XlaBuffers& outputs) {
  std::vector<const XlaBuffer*> in = Tensors(inputs);
  std::vector<const XlaBuffer*> out = Tensors(outputs);
  if (in.size() != out.size() || (host_.order_is_first && in.empty())) {
    return {kInternal, What() + ": as many results as tensors are due."};
  }
  if (host_.order_is_first) {
    HandOn(*in.front(), *out.front());
    in.erase(in.begin());
    out.erase(out.begin());
  }
  tensors_.resize(in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    Outcome outcome = TakeOne(i, *in[i], *out[i]);
    if (outcome.code != 0) return outcome;
  }
  return {};
}

Outcome Call::TakeOne(size_t index, const XlaBuffer& input, const XlaBuffer& output) {
  Tensor& tensor = tensors_[index];
  tensor.type = TypeOf(input.dtype);
  if (tensor.type == nullptr) {
    return {kInvalidArgument, What() + ": tensor " + std::to_string(index) +
                                  " has XLA's type number " + std::to_string(input.dtype) +
                                  ", which cannot be sent."};
  }
  tensor.input = NotNull(input.data);
  tensor.output = NotNull(output.data);
  tensor.input_dims.assign(input.dims, input.dims + input.rank);
  tensor.output_dims.assign(output.dims, output.dims + output.rank);
  return {};
}

std::vector<SyrtosPart> Call::Parts() const {
  std::vector<SyrtosPart> parts(tensors_.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    const Tensor& tensor = tensors_[i];
    SyrtosPart& part = parts[i];
    part.name = i < attributes_.part_names.size() ? attributes_.part_names[i].c_str() : "";
    part.dtype = tensor.type->syrtos;
    part.item_bytes = tensor.type->bytes;
    part.ndim = static_cast<int32_t>(tensor.input_dims.size());
    part.dims = tensor.input_dims.data();
    part.input = tensor.input;
    part.output = KeepsShape(attributes_.kind) ? tensor.output : nullptr;
    part.num_splits = 0;
    part.splits = nullptr;
  }
  return parts;
}

void* Call::Allocate(int32_t part, const int64_t* dims, int32_t rank) {
  const Tensor& tensor = tensors_[static_cast<size_t>(part)];
  const auto count = static_cast<size_t>(rank);
  if (count == tensor.output_dims.size() &&
      std::equal(dims, dims + count, tensor.output_dims.begin())) {
    return tensor.output;
  }
  wrong_shape_ = What() + ": the result has shape " + ShapeText(dims, count) +
                 " where the compiled program was made for " +
                 ShapeText(tensor.output_dims.data(), tensor.output_dims.size()) + ". Inside " +
                 host_.program +
                 " all ranks must have equally many rows, since shapes are fixed before it runs; "
                 "make them equal, or call it outside of it.";
  size_t bytes = tensor.type->bytes;
  for (size_t d = 0; d < count; ++d) bytes *= static_cast<size_t>(dims[d]);
  scratch_.push_back(std::make_unique<char[]>(std::max<size_t>(bytes, 1)));
  return scratch_.back().get();
}

std::string Call::What() const {
  std::string text = NameOf(attributes_.kind);
  return attributes_.name.empty() ? text : text + " \"" + attributes_.name + "\"";
}

std::string Call::Named(const std::string& message) const {
  const std::string unnamed = std::string(NameOf(attributes_.kind)) + " (unnamed call ";
  const size_t begin = message.find(unnamed);
  if (attributes_.name.empty() || begin == std::string::npos) return message;
  const size_t end = message.find(')', begin);
  if (end == std::string::npos) return message;
  return message.substr(0, begin) + What() + message.substr(end + 1);
}

void Call::Finish(int32_t code, const char* message) {
  if (code != 0) {
    End({code, Named(message != nullptr ? message : "")});
  } else if (!wrong_shape_.empty()) {
    End({kMismatch, wrong_shape_});
  } else {
    End({});
  }
}

}  // namespace syrtos_xla
