#include "framework_ops/tensorflow_xla/untyped.h"

#include <pthread.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework_ops/tensorflow_xla/description.h"
#include "framework_ops/tensorflow_xla/group.h"
#include "framework_ops/xla/call.h"
#include "framework_ops/xla/mapping.h"

namespace syrtos_tf_xla {
namespace {

using syrtos_xla::Outcome;
using syrtos_xla::XlaBuffer;
using syrtos_xla::XlaBuffers;

// A call whose end a thread waits for. pthread's own types: those of the standard library would tie
// the library to a newer libstdc++.
class AwaitedCall : public syrtos_xla::Call {
 public:
  explicit AwaitedCall(syrtos_xla::Attributes attributes)
      : Call(kTensorflow, std::move(attributes)) {
    pthread_mutex_init(&mutex_, nullptr);
    pthread_cond_init(&changed_, nullptr);
  }
  ~AwaitedCall() override {
    pthread_cond_destroy(&changed_);
    pthread_mutex_destroy(&mutex_);
  }

  Outcome Wait() {
    pthread_mutex_lock(&mutex_);
    while (!ended_) pthread_cond_wait(&changed_, &mutex_);
    pthread_mutex_unlock(&mutex_);
    return std::move(outcome_);
  }

 private:
  void End(Outcome outcome) override {
    pthread_mutex_lock(&mutex_);
    outcome_ = std::move(outcome);
    ended_ = true;
    // With the mutex: once it is free, the call may be gone.
    pthread_cond_signal(&changed_);
    pthread_mutex_unlock(&mutex_);
  }

  pthread_mutex_t mutex_;
  pthread_cond_t changed_;
  bool ended_ = false;
  Outcome outcome_;
};

void Report(const Outcome& outcome, void* status) {
  if (outcome.code == 0) return;
  *static_cast<std::optional<std::string>*>(status) = outcome.text;
}

std::vector<void*> Pointers(std::vector<XlaBuffer>* buffers) {
  std::vector<void*> pointers;
  pointers.reserve(buffers->size());
  for (XlaBuffer& buffer : *buffers) pointers.push_back(&buffer);
  return pointers;
}

Outcome Run(void* out, const void** inputs, Description description) {
  const size_t count = description.inputs.size();
  for (size_t i = 0; i < count; ++i) {
    description.inputs[i].data = const_cast<void*>(inputs[i]);
    description.outputs[i].data = count == 1 ? out : static_cast<void**>(out)[i];
  }
  std::vector<void*> in = Pointers(&description.inputs);
  std::vector<void*> results = Pointers(&description.outputs);
  XlaBuffers arguments = {};
  XlaBuffers outputs = {};
  arguments.size = outputs.size = static_cast<int64_t>(count);
  arguments.items = in.data();
  outputs.items = results.data();
  AwaitedCall call(std::move(description.attributes));
  Outcome outcome = call.Take(arguments, outputs);
  if (outcome.code != 0) return outcome;
  syrtos_xla::Submit(&call);
  return call.Wait();
}

}  // namespace

const syrtos_xla::Host kTensorflow = {"tf.function(jit_compile=True)",
                                      "by a new tf.function or model.compile(...)", true, false};

void UntypedCollective(void* out, const void** inputs, const char* opaque, size_t length,
                       void* status) {
  std::optional<Description> description = ReadDescription(opaque, length);
  if (!description) {
    Report({syrtos_xla::kInternal,
            "syrtos: the description of a collective cannot be read: the Python files of "
            "syrtos.tensorflow and _tensorflow_xla.so come from different builds; reinstall "
            "syrtos"},
           status);
    return;
  }
  Report(Run(out, inputs, std::move(*description)), status);
}

void UntypedGroup(void* out, const void** /*inputs*/, const char* opaque, size_t length,
                  void* status) {
  const auto group =
      static_cast<uint32_t>(std::strtoul(std::string(opaque, length).c_str(), nullptr, 10));
  void** results = static_cast<void**>(out);
  Report(TellGroup(group, results[0], results[1]), status);
}

}  // namespace syrtos_tf_xla
