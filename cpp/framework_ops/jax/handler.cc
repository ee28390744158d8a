// The function that XLA calls for each collective of a compiled program. It never waits: XLA gets a
// future, so no thread of its pool is held while other ranks are awaited.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework_ops/jax/attributes.h"
#include "framework_ops/jax/call.h"
#include "framework_ops/jax/mapping.h"
#include "framework_ops/jax/xla_ffi.h"
#include "syrtos/c_api.h"

namespace syrtos_jax {
namespace {

const SyrtosApi* Api() {
  static const SyrtosApi* const api = syrtos_api(SYRTOS_C_API_VERSION);
  return api;
}

void* Allocate(void* user, int32_t part, const int64_t* dims, int32_t rank) {
  return static_cast<Call*>(user)->Allocate(part, dims, rank);
}

void Done(void* user, int32_t code, const char* message) {
  static_cast<Call*>(user)->Finish(code, message);
}

// XLA asks once which version of its interface the handler was written for.
bool AnswersMetadataQuery(const XlaCallFrame& frame) {
  if (frame.extension == nullptr || frame.extension->type != kXlaMetadataExtension) return false;
  XlaMetadata* metadata = reinterpret_cast<XlaMetadataExtension*>(frame.extension)->metadata;
  metadata->version.major = 0;
  metadata->version.minor = 1;  // the first with futures
  metadata->traits = 0;
  return true;
}

// Whether shapes in the program still fit the ranks; if not, what to say.
bool FitsWorld(const Attributes& attributes, std::string* problem) {
  const SyrtosApi* api = Api();
  // Without an engine, or a member's place in the set, submit says what is wrong.
  if (attributes.size == 0 || api->size() < 0) return true;
  const int32_t size = api->group_size(attributes.group);
  const int32_t position = api->group_rank(attributes.group);
  if (size < 0 || (size == attributes.size && position == attributes.position)) return true;
  *problem = std::string(NameOf(attributes.kind)) + ": this program was compiled for position " +
             std::to_string(attributes.position) + " of " + std::to_string(attributes.size) +
             " ranks in process set " + std::to_string(attributes.group) + ", but this is " +
             std::to_string(position) + " of " + std::to_string(size) +
             ". Compile it again, see jax.clear_caches().";
  return false;
}

// Submits the request; afterwards `call` may have ended and be gone.
void Submit(Call* call) {
  const Attributes& attributes = call->attributes();
  std::string problem;
  if (!FitsWorld(attributes, &problem)) {
    call->Finish(kInvalidArgument, problem.c_str());
    return;
  }
  const std::vector<SyrtosPart> parts = call->Parts();
  SyrtosRequest request = {};
  request.kind = static_cast<int32_t>(attributes.kind);
  // Matched by order, which the program keeps on all ranks; the name is compared in the parts.
  request.name = "";
  request.group = attributes.group;
  request.op = attributes.op;
  request.prescale = attributes.prescale;
  request.postscale = attributes.postscale;
  request.root = attributes.root;
  request.num_parts = static_cast<int32_t>(parts.size());
  request.parts = parts.data();
  request.user = call;
  request.allocate = Allocate;
  request.done = Done;
  char error[1024] = "";
  const int32_t code = Api()->submit(&request, error, sizeof(error));
  if (code != 0) call->Finish(code, error);
}

XlaError* Handle(XlaCallFrame* frame) {
  if (AnswersMetadataQuery(*frame) || frame->stage != kXlaExecuteStage) return nullptr;
  if (Api() == nullptr) {
    return MakeError(frame->api, kInternal,
                     "libsyrtos.so is older than _jax.so: reinstall syrtos, so that both come "
                     "from one build");
  }
  Attributes attributes;
  if (const char* missing = ReadAttributes(frame->attributes, &attributes)) {
    return MakeError(frame->api, kInternal,
                     std::string("the attribute ") + missing +
                         " is missing: the Python files of syrtos.jax and _jax.so come from "
                         "different builds; reinstall syrtos");
  }
  auto call = std::make_unique<Call>(*frame, std::move(attributes));
  if (XlaError* error = call->Prepare(frame)) return error;
  Submit(call.release());
  return nullptr;
}

}  // namespace
}  // namespace syrtos_jax

extern "C" __attribute__((visibility("default"))) syrtos_jax::XlaError* syrtos_jax_collective(
    syrtos_jax::XlaCallFrame* frame) {
  return syrtos_jax::Handle(frame);
}

// How many collectives of compiled programs have failed so far.
extern "C" __attribute__((visibility("default"))) uint64_t syrtos_jax_failures() {
  return syrtos_jax::ErrorCount();
}
