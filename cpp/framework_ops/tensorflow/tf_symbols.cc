#include "framework_ops/tensorflow/tf_symbols.h"

#include <dlfcn.h>

namespace syrtos_tf {
namespace {

// RTLD_NOLOAD: only a TensorFlow that is there already, never a second copy.
void* FindLoaded(const char* library) {
  return dlopen(library, RTLD_NOLOAD | RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

TfSymbols::TfSymbols() {
  void* library = FindLoaded("libtensorflow_framework.so.2");
  if (library == nullptr) {
    problem_ =
        "libtensorflow_framework.so.2 is not loaded in this process: import tensorflow first";
    return;
  }
  std::string missing;
#define X(name, result, arguments)                                  \
  (name) = reinterpret_cast<decltype(name)>(dlsym(library, #name)); \
  if ((name) == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(#name);
  SYRTOS_TF_SYMBOLS(X)
#undef X
  if (!missing.empty()) {
    problem_ = "this TensorFlow lacks " + missing + ": install TensorFlow 2.16 to 2.21";
  }
}

const TfSymbols& Tf() {
  static const TfSymbols symbols;
  return symbols;
}

bool HasKernels(const char* name) {
  using GetKernels = TF_Buffer* (*)(const char*, TF_Status*);
  using DeleteBuffer = void (*)(TF_Buffer*);
  // These two live in the other library only.
  void* library = FindLoaded("libtensorflow_cc.so.2");
  if (library == nullptr) return false;
  auto get = reinterpret_cast<GetKernels>(dlsym(library, "TF_GetRegisteredKernelsForOp"));
  auto drop = reinterpret_cast<DeleteBuffer>(dlsym(library, "TF_DeleteBuffer"));
  if (get == nullptr || drop == nullptr) return false;
  TfStatus status;
  TF_Buffer* kernels = get(name, status.get());
  if (kernels == nullptr) return false;
  const bool found = kernels->length > 0;
  drop(kernels);
  return found;
}

}  // namespace syrtos_tf
