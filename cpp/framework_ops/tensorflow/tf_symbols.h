// TensorFlow's C kernel API, declared by ourselves and found at run time in the TensorFlow that the
// process has loaded. So this library is built without TensorFlow and serves many releases of it.
//
// Owner: one immutable table per process, filled at the first use. Threads: any.
// Failure: problem() is not empty if TensorFlow is not loaded or lacks a function; nothing may be
// called then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

extern "C" {
struct TF_Status;
struct TF_Tensor;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_AsyncOpKernelDoneCallback;
struct TF_OpDefinitionBuilder;
struct TF_ShapeInferenceContext;
struct TF_ShapeHandle;
struct TF_Buffer {
  const void* data;
  size_t length;
  void (*data_deallocator)(void* data, size_t length);
};
}

namespace syrtos_tf {

using TF_DataType = int;  // an enum in C
using TF_Code = int;      // likewise

using CreateFunction = void* (*)(TF_OpKernelConstruction*);
using ComputeFunction = void (*)(void*, TF_OpKernelContext*);
using ComputeAsyncFunction = void (*)(void*, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback*);
using DeleteFunction = void (*)(void*);
using ShapeFunction = void (*)(TF_ShapeInferenceContext*, TF_Status*);

// X(name, return type, arguments), all in libtensorflow_framework.so.2 of TensorFlow 2.16 to 2.21.
#define SYRTOS_TF_SYMBOLS(X)                                                                      \
  X(TF_NewStatus, TF_Status*, ())                                                                 \
  X(TF_DeleteStatus, void, (TF_Status*))                                                          \
  X(TF_SetStatus, void, (TF_Status*, TF_Code, const char*))                                       \
  X(TF_GetCode, TF_Code, (const TF_Status*))                                                      \
  X(TF_Message, const char*, (const TF_Status*))                                                  \
  X(TF_NewOpDefinitionBuilder, TF_OpDefinitionBuilder*, (const char*))                            \
  X(TF_OpDefinitionBuilderAddAttr, void, (TF_OpDefinitionBuilder*, const char*))                  \
  X(TF_OpDefinitionBuilderAddInput, void, (TF_OpDefinitionBuilder*, const char*))                 \
  X(TF_OpDefinitionBuilderAddOutput, void, (TF_OpDefinitionBuilder*, const char*))                \
  X(TF_OpDefinitionBuilderSetIsStateful, void, (TF_OpDefinitionBuilder*, bool))                   \
  X(TF_OpDefinitionBuilderSetShapeInferenceFunction, void,                                        \
    (TF_OpDefinitionBuilder*, ShapeFunction))                                                     \
  X(TF_RegisterOpDefinition, void, (TF_OpDefinitionBuilder*, TF_Status*))                         \
  X(TF_NewShapeHandle, TF_ShapeHandle*, ())                                                       \
  X(TF_DeleteShapeHandle, void, (TF_ShapeHandle*))                                                \
  X(TF_ShapeInferenceContextNumInputs, int64_t, (TF_ShapeInferenceContext*))                      \
  X(TF_ShapeInferenceContextGetInput, void,                                                       \
    (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*))                                \
  X(TF_ShapeInferenceContextSetOutput, void,                                                      \
    (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*))                                \
  X(TF_ShapeInferenceContextRankKnown, int, (TF_ShapeInferenceContext*, TF_ShapeHandle*))         \
  X(TF_ShapeInferenceContextRank, int64_t, (TF_ShapeInferenceContext*, TF_ShapeHandle*))          \
  X(TF_ShapeInferenceContextVectorFromSize, TF_ShapeHandle*, (TF_ShapeInferenceContext*, size_t)) \
  X(TF_ShapeInferenceContextScalar, TF_ShapeHandle*, (TF_ShapeInferenceContext*))                 \
  X(TF_ShapeInferenceContextSubshape, void,                                                       \
    (TF_ShapeInferenceContext*, TF_ShapeHandle*, int64_t, int64_t, TF_ShapeHandle*, TF_Status*))  \
  X(TF_ShapeInferenceContextConcatenateShapes, void,                                              \
    (TF_ShapeInferenceContext*, TF_ShapeHandle*, TF_ShapeHandle*, TF_ShapeHandle*, TF_Status*))   \
  X(TF_NewKernelBuilder, TF_KernelBuilder*,                                                       \
    (const char*, const char*, CreateFunction, ComputeFunction, DeleteFunction))                  \
  X(TF_NewAsyncKernelBuilder, TF_KernelBuilder*,                                                  \
    (const char*, const char*, CreateFunction, ComputeAsyncFunction, DeleteFunction))             \
  X(TF_RegisterKernelBuilder, void, (const char*, TF_KernelBuilder*, TF_Status*))                 \
  X(TF_NumInputs, int, (TF_OpKernelContext*))                                                     \
  X(TF_GetInput, void, (TF_OpKernelContext*, int, TF_Tensor**, TF_Status*))                       \
  X(TF_AllocateOutput, TF_Tensor*,                                                                \
    (TF_OpKernelContext*, int, TF_DataType, const int64_t*, int, size_t, TF_Status*))             \
  X(TF_ForwardInputOrAllocateOutput, TF_Tensor*,                                                  \
    (TF_OpKernelContext*, const int*, int, int, const int64_t*, int, int*, TF_Status*))           \
  X(TF_OpKernelContext_Failure, void, (TF_OpKernelContext*, TF_Status*))                          \
  X(TF_OpKernelConstruction_Failure, void, (TF_OpKernelConstruction*, TF_Status*))                \
  X(TF_OpKernelConstruction_GetAttrSize, void,                                                    \
    (TF_OpKernelConstruction*, const char*, int32_t*, int32_t*, TF_Status*))                      \
  X(TF_OpKernelConstruction_GetAttrInt64, void,                                                   \
    (TF_OpKernelConstruction*, const char*, int64_t*, TF_Status*))                                \
  X(TF_OpKernelConstruction_GetAttrString, void,                                                  \
    (TF_OpKernelConstruction*, const char*, char*, size_t, TF_Status*))                           \
  X(TF_OpKernelConstruction_GetAttrStringList, void,                                              \
    (TF_OpKernelConstruction*, const char*, char**, size_t*, int, void*, size_t, TF_Status*))     \
  X(TF_TensorType, TF_DataType, (const TF_Tensor*))                                               \
  X(TF_NumDims, int, (const TF_Tensor*))                                                          \
  X(TF_Dim, int64_t, (const TF_Tensor*, int))                                                     \
  X(TF_TensorData, void*, (const TF_Tensor*))                                                     \
  X(TF_TensorByteSize, size_t, (const TF_Tensor*))                                                \
  X(TF_DeleteTensor, void, (TF_Tensor*))

class TfSymbols {
 public:
  TfSymbols();
  // Empty, or what is missing and what to do about it.
  const std::string& problem() const { return problem_; }

#define X(name, result, arguments) result(*name) arguments = nullptr;
  SYRTOS_TF_SYMBOLS(X)
#undef X

 private:
  std::string problem_;
};

const TfSymbols& Tf();

// Whether some library of this process has registered kernels for the op `name`; false if that
// cannot be told. Registering a name twice ends the process.
bool HasKernels(const char* name);

// A TF_Status that cleans up after itself.
class TfStatus {
 public:
  TfStatus() : status_(Tf().TF_NewStatus()) {}
  ~TfStatus() { Tf().TF_DeleteStatus(status_); }
  TfStatus(const TfStatus&) = delete;
  TfStatus& operator=(const TfStatus&) = delete;

  TF_Status* get() const { return status_; }
  bool ok() const { return Tf().TF_GetCode(status_) == 0; }
  const char* message() const { return Tf().TF_Message(status_); }
  void Set(TF_Code code, const char* message) { Tf().TF_SetStatus(status_, code, message); }

 private:
  TF_Status* status_;
};

}  // namespace syrtos_tf
