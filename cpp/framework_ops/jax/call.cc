#include "framework_ops/jax/call.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace syrtos_jax {
namespace {

// Errors made so far, in the whole process.
std::atomic<uint64_t>& Errors() {
  static std::atomic<uint64_t> errors{0};
  return errors;
}

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

// Buffers of a frame without XLA's tokens, which only give an order.
std::vector<const XlaBuffer*> Tensors(const XlaBuffers& buffers) {
  std::vector<const XlaBuffer*> tensors;
  for (int64_t i = 0; i < buffers.size; ++i) {
    const auto* buffer = static_cast<const XlaBuffer*>(buffers.items[i]);
    if (buffer->dtype != kXlaTokenType) tensors.push_back(buffer);
  }
  return tensors;
}

}  // namespace

uint64_t ErrorCount() { return Errors(); }

XlaError* MakeError(const XlaApi* api, int32_t syrtos_code, const std::string& message) {
  ++Errors();
  XlaErrorCreateArgs args = {sizeof(args), nullptr, message.c_str(), ToXlaCode(syrtos_code)};
  return api->Error_Create(&args);
}

Call::Call(const XlaCallFrame& frame, Attributes attributes)
    : api_(frame.api), attributes_(std::move(attributes)) {}

XlaError* Call::Prepare(XlaCallFrame* frame) {
  const std::vector<const XlaBuffer*> inputs = Tensors(frame->arguments);
  const std::vector<const XlaBuffer*> outputs = Tensors(frame->results);
  if (inputs.size() != outputs.size()) {
    return MakeError(api_, kInternal, What() + ": as many results as tensors are due.");
  }
  tensors_.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (XlaError* error = Take(i, *inputs[i], *outputs[i])) return error;
  }
  XlaFutureCreateArgs args = {sizeof(args), nullptr, nullptr};
  if (XlaError* error = api_->Future_Create(&args)) return error;
  future_ = frame->future = args.future;
  return nullptr;
}

XlaError* Call::Take(size_t index, const XlaBuffer& input, const XlaBuffer& output) {
  Tensor& tensor = tensors_[index];
  tensor.type = TypeOf(input.dtype);
  if (tensor.type == nullptr) {
    return MakeError(api_, kInvalidArgument,
                     What() + ": tensor " + std::to_string(index) + " has XLA's type number " +
                         std::to_string(input.dtype) + ", which cannot be sent.");
  }
  tensor.input = NotNull(input.data);
  tensor.output = NotNull(output.data);
  tensor.input_dims.assign(input.dims, input.dims + input.rank);
  tensor.output_dims.assign(output.dims, output.dims + output.rank);
  return nullptr;
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
                 ShapeText(tensor.output_dims.data(), tensor.output_dims.size()) +
                 ". Inside jax.jit all ranks must have equally many rows, since shapes are fixed "
                 "before it runs; make them equal, or call it outside of jit.";
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
  code_ = code;
  if (code != 0) {
    message_ = Named(message != nullptr ? message : "");
  } else if (!wrong_shape_.empty()) {
    code_ = kMismatch;
    message_ = wrong_shape_;
  }
  RunAside(this);
}

void Call::Run() {
  if (code_ == 0) {
    XlaFutureSetAvailableArgs args = {sizeof(args), nullptr, future_};
    api_->Future_SetAvailable(&args);
  } else {
    XlaFutureSetErrorArgs args = {sizeof(args), nullptr, future_, MakeError(api_, code_, message_)};
    api_->Future_SetError(&args);
  }
}

}  // namespace syrtos_jax
