#include "framework_ops/tensorflow/group_kernel.h"

#include <memory>
#include <optional>
#include <string>

#include "framework_ops/tensorflow/attributes.h"
#include "framework_ops/tensorflow/mapping.h"
#include "syrtos/c_api.h"

namespace syrtos_tf {
namespace {

struct GroupKernel {
  uint32_t group;
};

void SetScalar(TF_OpKernelContext* context, int index, int32_t value, TfStatus* status) {
  constexpr TF_DataType kTfInt32 = 3;
  TF_Tensor* tensor =
      Tf().TF_AllocateOutput(context, index, kTfInt32, nullptr, 0, sizeof(value), status->get());
  if (!status->ok()) return;
  *static_cast<int32_t*>(Tf().TF_TensorData(tensor)) = value;
  Tf().TF_DeleteTensor(tensor);
}

}  // namespace

void* CreateGroupKernel(TF_OpKernelConstruction* construction) {
  std::optional<uint32_t> group = ReadGroup(construction);
  if (!group) return nullptr;
  return std::make_unique<GroupKernel>(GroupKernel{*group}).release();
}

void ComputeGroup(void* kernel, TF_OpKernelContext* context) {
  const uint32_t group = static_cast<const GroupKernel*>(kernel)->group;
  const SyrtosApi* api = syrtos_api(SYRTOS_C_API_VERSION);
  TfStatus status;
  if (api == nullptr || api->size() < 0) {
    status.Set(ToTfCode(kNotInitialized),
               "Syrtos has no engine in this process: call init() first");
  } else if (api->group_size(group) < 0) {
    const std::string text =
        "there is no process set " + std::to_string(group) + " (it may have been removed)";
    status.Set(ToTfCode(kInvalidArgument), text.c_str());
  } else {
    SetScalar(context, 0, api->group_size(group), &status);
    if (status.ok()) SetScalar(context, 1, api->group_rank(group), &status);
  }
  if (!status.ok()) Tf().TF_OpKernelContext_Failure(context, status.get());
}

void DestroyGroupKernel(void* kernel) { delete static_cast<GroupKernel*>(kernel); }

}  // namespace syrtos_tf
