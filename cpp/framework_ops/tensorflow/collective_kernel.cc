#include "framework_ops/tensorflow/collective_kernel.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework_ops/tensorflow/attributes.h"
#include "framework_ops/tensorflow/call.h"
#include "syrtos/c_api.h"

namespace syrtos_tf {
namespace {

struct Kernel {
  Kind kind;
  Attributes attributes;
};

const SyrtosApi* Api() {
  static const SyrtosApi* const api = syrtos_api(SYRTOS_C_API_VERSION);
  return api;
}

bool KeepsShape(Kind kind) { return kind == Kind::kAllreduce || kind == Kind::kBroadcast; }

void* AllocateOutput(void* user, int32_t part, const int64_t* dims, int32_t rank) {
  return static_cast<Call*>(user)->Allocate(part, dims, rank);
}

void Done(void* user, int32_t code, const char* message) {
  auto* call = static_cast<Call*>(user);
  if (code != 0) call->Fail(code, message != nullptr ? message : "");
  Call::Finish(call);
}

std::vector<SyrtosPart> PartsOf(const Attributes& attributes, const Call& call) {
  std::vector<SyrtosPart> parts(static_cast<size_t>(call.size()));
  for (int i = 0; i < call.size(); ++i) {
    SyrtosPart& part = parts[static_cast<size_t>(i)];
    const auto index = static_cast<size_t>(i);
    part.name =
        index < attributes.tensor_names.size() ? attributes.tensor_names[index].c_str() : "";
    part.dtype = SyrtosDType(call.type(i));
    part.item_bytes = static_cast<uint32_t>(ItemBytes(call.type(i)));
    part.ndim = static_cast<int32_t>(call.dims(i).size());
    part.dims = call.dims(i).data();
    part.input = call.input(i);
    part.output = call.output(i);
    part.num_splits = 0;
    part.splits = nullptr;
  }
  return parts;
}

// The second input of an alltoall is no tensor of the collective but its splits: `parts` loses it.
// False, with the reason given to the call, if it is no vector.
bool TakeSplits(Call* call, std::vector<SyrtosPart>* parts) {
  parts->pop_back();
  const std::vector<int64_t>& dims = call->dims(1);
  if (dims.size() != 1 || dims[0] > std::numeric_limits<int32_t>::max()) {
    call->Fail(kInvalidArgument, "alltoall: splits must be a vector, one number for each rank.");
    return false;
  }
  parts->front().num_splits = static_cast<int32_t>(dims[0]);
  parts->front().splits = static_cast<const int64_t*>(call->input(1));
  return true;
}

// The second output of an alltoall.
void SetReceivedSplits(void* user, int32_t /*part*/, const int64_t* rows, int32_t num_rows) {
  const int64_t dims[] = {num_rows};
  void* output = static_cast<Call*>(user)->Allocate(1, dims, 1);
  if (output != nullptr) std::copy_n(rows, num_rows, static_cast<int64_t*>(output));
}

// Takes the tensors, submits the request and returns true, or gives the call its error.
bool Submit(const Kernel& kernel, Call* call) {
  const Attributes& attributes = kernel.attributes;
  for (int i = 0; i < call->size(); ++i) {
    if (!call->Take(i, KeepsShape(kernel.kind))) return false;
  }
  std::vector<SyrtosPart> parts = PartsOf(attributes, *call);
  const bool alltoall = kernel.kind == Kind::kAlltoall;
  if (alltoall && !TakeSplits(call, &parts)) return false;
  SyrtosRequest request = {};
  request.kind = static_cast<int32_t>(kernel.kind);
  request.name = attributes.op_name.c_str();
  request.group = attributes.group;
  request.op = attributes.op;
  request.prescale = attributes.prescale;
  request.postscale = attributes.postscale;
  request.root = attributes.root;
  request.num_parts = static_cast<int32_t>(parts.size());
  request.parts = parts.data();
  request.user = call;
  request.allocate = AllocateOutput;
  request.done = Done;
  request.received = alltoall ? SetReceivedSplits : nullptr;
  // Once submitted the call may end at any moment: touch it no more, unless it was refused.
  char error[1024] = "";
  const int32_t code = Api()->submit(&request, error, sizeof(error));
  if (code != 0) call->Fail(code, error);
  return code == 0;
}

template <Kind kKind>
void* Create(TF_OpKernelConstruction* construction) {
  if (Api() == nullptr) {
    TfStatus status;
    status.Set(
        ToTfCode(kInternal),
        "libsyrtos.so is older than _tensorflow.so: reinstall syrtos, so that both come from "
        "one build.");
    Tf().TF_OpKernelConstruction_Failure(construction, status.get());
    return nullptr;
  }
  std::optional<Attributes> attributes = ReadAttributes(construction);
  if (!attributes) return nullptr;
  return std::make_unique<Kernel>(Kernel{kKind, std::move(*attributes)}).release();
}

void Destroy(void* kernel) { delete static_cast<Kernel*>(kernel); }

void ComputeAsync(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  auto call = std::make_unique<Call>(context, done);
  if (Submit(*static_cast<const Kernel*>(kernel), call.get())) {
    call.release();  // NOLINT(bugprone-unused-return-value): Done has it
  } else {
    Call::Finish(call.release());
  }
}

}  // namespace

KernelFunctions KernelFunctionsOf(Kind kind) {
  switch (kind) {
    case Kind::kAllreduce:
      return {Create<Kind::kAllreduce>, ComputeAsync, Destroy};
    case Kind::kAllgather:
      return {Create<Kind::kAllgather>, ComputeAsync, Destroy};
    case Kind::kBroadcast:
      return {Create<Kind::kBroadcast>, ComputeAsync, Destroy};
    case Kind::kAlltoall:
      return {Create<Kind::kAlltoall>, ComputeAsync, Destroy};
    case Kind::kReducescatter:
      return {Create<Kind::kReducescatter>, ComputeAsync, Destroy};
    case Kind::kBarrier:
      return {Create<Kind::kBarrier>, ComputeAsync, Destroy};
  }
  return {};
}

}  // namespace syrtos_tf
