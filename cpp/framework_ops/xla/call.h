// One run of a collective in a compiled program: its buffers, and how it ends.
//
// Owner: the handler until it is submitted, then the engine, which hands it back through Finish.
// Threads: one at a time. Failure: the first error goes to XLA.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework_ops/xla/attributes.h"
#include "framework_ops/xla/host.h"
#include "framework_ops/xla/mapping.h"
#include "framework_ops/xla/xla_ffi.h"
#include "syrtos/c_api.h"

namespace syrtos_xla {

// A number of syrtos::StatusCode and its text; 0 is fine.
struct Outcome {
  int32_t code = 0;
  std::string text;
};

class Call {
 public:
  // `host` lives as long as the process.
  Call(const Host& host, Attributes attributes);
  virtual ~Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Takes the arrays of the program. The memory stays until the call has ended.
  Outcome Take(const XlaBuffers& inputs, const XlaBuffers& outputs);

  const Host& host() const { return host_; }
  const Attributes& attributes() const { return attributes_; }
  // One for each tensor; points into this object.
  std::vector<SyrtosPart> Parts() const;

  // Memory for a result of this shape: XLA's own if it has this shape, else memory that is thrown
  // away, and the call fails at its end (null would end the engine, for a mistake of this call).
  void* Allocate(int32_t part, const int64_t* dims, int32_t rank);

  // The collective has ended, code 0 for well. The call may be gone afterwards.
  void Finish(int32_t code, const char* message);

 protected:
  // Tells XLA how the call has ended, and gives up the call. Must not wait.
  virtual void End(Outcome outcome) = 0;

 private:
  struct Tensor {
    const TypeRow* type = nullptr;
    const void* input = nullptr;
    void* output = nullptr;
    std::vector<int64_t> input_dims;
    std::vector<int64_t> output_dims;
  };

  // "allreduce", with the name that the user gave.
  std::string What() const;
  // The engine's text with that name, instead of the number of the call.
  std::string Named(const std::string& message) const;
  Outcome TakeOne(size_t index, const XlaBuffer& input, const XlaBuffer& output);

  const Host& host_;
  const Attributes attributes_;
  std::vector<Tensor> tensors_;
  std::vector<std::unique_ptr<char[]>> scratch_;
  std::string wrong_shape_;
};

// Submits the request of a call, which End then gives up; it may be gone when this returns.
void Submit(Call* call);

}  // namespace syrtos_xla
