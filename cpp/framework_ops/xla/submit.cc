// From a call to a request of the engine.
#include <string>
#include <vector>

#include "framework_ops/xla/call.h"
#include "framework_ops/xla/mapping.h"
#include "syrtos/c_api.h"

namespace syrtos_xla {
namespace {

void* Allocate(void* user, int32_t part, const int64_t* dims, int32_t rank) {
  return static_cast<Call*>(user)->Allocate(part, dims, rank);
}

void Done(void* user, int32_t code, const char* message) {
  static_cast<Call*>(user)->Finish(code, message);
}

// Whether shapes in the program still fit the ranks; if not, what to say.
bool FitsWorld(const SyrtosApi* api, const Call& call, std::string* problem) {
  const Attributes& attributes = call.attributes();
  // Without an engine, or a member's place in the set, submit says what is wrong.
  if (attributes.size == 0 || api->size() < 0) return true;
  const int32_t size = api->group_size(attributes.group);
  const int32_t position = api->group_rank(attributes.group);
  if (size < 0 || (size == attributes.size && position == attributes.position)) return true;
  *problem = std::string(NameOf(attributes.kind)) + ": this program was compiled for position " +
             std::to_string(attributes.position) + " of " + std::to_string(attributes.size) +
             " ranks in process set " + std::to_string(attributes.group) + ", but this is " +
             std::to_string(position) + " of " + std::to_string(size) + ". Compile it again, " +
             call.host().make_anew + ".";
  return false;
}

}  // namespace

void Submit(Call* call) {
  const SyrtosApi* const api = syrtos_api(SYRTOS_C_API_VERSION);
  if (api == nullptr) {
    call->Finish(kInternal,
                 "libsyrtos.so is older than the libraries that call it: reinstall syrtos, so that "
                 "all come from one build.");
    return;
  }
  const Attributes& attributes = call->attributes();
  std::string problem;
  if (!FitsWorld(api, *call, &problem)) {
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
  // Once submitted the call may end at any moment: touch it no more, unless it was refused.
  char error[1024] = "";
  const int32_t code = api->submit(&request, error, sizeof(error));
  if (code != 0) call->Finish(code, error);
}

}  // namespace syrtos_xla
