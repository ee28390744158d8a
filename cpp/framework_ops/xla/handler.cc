#include "framework_ops/xla/handler.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "framework_ops/xla/attributes.h"
#include "framework_ops/xla/call.h"
#include "framework_ops/xla/continuations.h"
#include "framework_ops/xla/mapping.h"

namespace syrtos_xla {
namespace {

// Errors made so far, in the whole process.
std::atomic<uint64_t>& Errors() {
  static std::atomic<uint64_t> errors{0};
  return errors;
}

// The functions of futures.
struct Futures {
  XlaError* (*create)(XlaFutureCreateArgs*);
  XlaError* (*set_available)(XlaFutureSetAvailableArgs*);
  XlaError* (*set_error)(XlaFutureSetErrorArgs*);
};

// In TensorFlow 2.18 they stand one place earlier in the table, where ThreadPool_NumThreads was put
// later.
Futures FuturesOf(const XlaApi& api, bool early) {
  if (!early) return {api.Future_Create, api.Future_SetAvailable, api.Future_SetError};
  return {reinterpret_cast<decltype(Futures::create)>(api.ThreadPool_NumThreads),
          reinterpret_cast<decltype(Futures::set_available)>(api.Future_Create),
          reinterpret_cast<decltype(Futures::set_error)>(api.Future_SetAvailable)};
}

// A call that ends by completing a future.
class FutureCall : public Call, public Task {
 public:
  FutureCall(const XlaCallFrame& frame, const Host& host, Attributes attributes)
      : Call(host, std::move(attributes)),
        api_(frame.api),
        futures_(FuturesOf(*frame.api, host.early_futures)) {}

  // Takes the tensors of the frame and makes the future. Null, or what is wrong.
  XlaError* Prepare(XlaCallFrame* frame) {
    const Outcome outcome = Take(frame->arguments, frame->results);
    if (outcome.code != 0) return MakeError(api_, outcome.code, outcome.text);
    XlaFutureCreateArgs args = {sizeof(args), nullptr, nullptr};
    if (XlaError* error = futures_.create(&args)) return error;
    future_ = frame->future = args.future;
    return nullptr;
  }

 private:
  // On a thread where the program may go on.
  void End(Outcome outcome) override {
    outcome_ = std::move(outcome);
    RunAside(this);
  }

  void Run() override {
    if (outcome_.code == 0) {
      XlaFutureSetAvailableArgs args = {sizeof(args), nullptr, future_};
      futures_.set_available(&args);
    } else {
      XlaFutureSetErrorArgs args = {sizeof(args), nullptr, future_,
                                    MakeError(api_, outcome_.code, outcome_.text)};
      futures_.set_error(&args);
    }
  }

  const XlaApi* api_;
  const Futures futures_;
  XlaFuture* future_ = nullptr;
  Outcome outcome_;
};

}  // namespace

bool AnswersMetadataQuery(const XlaCallFrame& frame) {
  if (frame.extension == nullptr || frame.extension->type != kXlaMetadataExtension) return false;
  XlaMetadata* metadata = reinterpret_cast<XlaMetadataExtension*>(frame.extension)->metadata;
  metadata->version.major = 0;
  metadata->version.minor = 1;  // the first with futures
  metadata->traits = 0;
  return true;
}

XlaError* MakeError(const XlaApi* api, int32_t syrtos_code, const std::string& message) {
  ++Errors();
  XlaErrorCreateArgs args = {sizeof(args), nullptr, message.c_str(), ToXlaCode(syrtos_code)};
  return api->Error_Create(&args);
}

uint64_t ErrorCount() { return Errors(); }

XlaError* Handle(XlaCallFrame* frame, const Host& host) {
  if (AnswersMetadataQuery(*frame) || frame->stage != kXlaExecuteStage) return nullptr;
  Attributes attributes;
  if (const char* missing = ReadAttributes(frame->attributes, &attributes)) {
    return MakeError(frame->api, kInternal,
                     std::string("the attribute ") + missing +
                         " is missing: the Python files of syrtos and its libraries come from "
                         "different builds; reinstall syrtos");
  }
  auto call = std::make_unique<FutureCall>(*frame, host, std::move(attributes));
  if (XlaError* error = call->Prepare(frame)) return error;
  Submit(call.release());
  return nullptr;
}

}  // namespace syrtos_xla
