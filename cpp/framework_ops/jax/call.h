// One run of a collective in a compiled program: its buffers and the future that XLA waits on.
//
// Owner: the handler until it is submitted, then the engine, which hands it back through Finish.
// Threads: one at a time. Failure: the first error goes to XLA.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework_ops/jax/attributes.h"
#include "framework_ops/jax/continuations.h"
#include "framework_ops/jax/xla_ffi.h"
#include "syrtos/c_api.h"

namespace syrtos_jax {

// Also counts: every failure of a call passes here before XLA hears of it.
XlaError* MakeError(const XlaApi* api, int32_t syrtos_code, const std::string& message);
// How many errors have been made in this process.
uint64_t ErrorCount();

class Call : public Task {
 public:
  Call(const XlaCallFrame& frame, Attributes attributes);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Takes the tensors of the frame and makes the future. Null, or what is wrong.
  XlaError* Prepare(XlaCallFrame* frame);

  const Attributes& attributes() const { return attributes_; }
  // One for each tensor; points into this object.
  std::vector<SyrtosPart> Parts() const;

  // Memory for a result of this shape: XLA's own if it has this shape, else memory that is thrown
  // away, and the call fails at its end (null would end the engine, for a mistake of this call).
  void* Allocate(int32_t part, const int64_t* dims, int32_t rank);

  // Tells XLA how the call has ended, code 0 for well, on a thread where the program may go on.
  // Destroys the call.
  void Finish(int32_t code, const char* message);

 private:
  struct Tensor {
    const TypeRow* type = nullptr;
    const void* input = nullptr;
    void* output = nullptr;
    std::vector<int64_t> input_dims;
    std::vector<int64_t> output_dims;
  };

  void Run() override;
  XlaError* Take(size_t index, const XlaBuffer& input, const XlaBuffer& output);
  std::string What() const;
  // The engine's text with the name that the user gave, instead of the number of the call.
  std::string Named(const std::string& message) const;

  const XlaApi* api_;
  const Attributes attributes_;
  std::vector<Tensor> tensors_;
  XlaFuture* future_ = nullptr;
  std::vector<std::unique_ptr<char[]>> scratch_;
  std::string wrong_shape_;
  int32_t code_ = 0;
  std::string message_;
};

}  // namespace syrtos_jax
