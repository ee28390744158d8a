// The kernel of SyrtosGroup: how many ranks a group has, and which of them this one is. Asked when
// the op runs, so that a graph stays right when the job's size changes.
#pragma once

#include "framework_ops/tensorflow/tf_symbols.h"

namespace syrtos_tf {

void* CreateGroupKernel(TF_OpKernelConstruction* construction);
void ComputeGroup(void* kernel, TF_OpKernelContext* context);
void DestroyGroupKernel(void* kernel);

}  // namespace syrtos_tf
