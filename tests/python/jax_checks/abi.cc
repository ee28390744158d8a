// Compiled, never run: our declarations of XLA's interface fit the header that jaxlib and
// TensorFlow ship.
#include <cstddef>

#include "framework_ops/xla/xla_ffi.h"
#include "xla/ffi/api/c_api.h"

using namespace syrtos_xla;

#define SAME(ours, our_field, theirs, their_field)                            \
  static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field) && \
                    sizeof(ours::our_field) == sizeof(theirs::their_field),   \
                #theirs "." #their_field)

SAME(XlaExtension, type, XLA_FFI_Extension_Base, type);
SAME(XlaVersion, major, XLA_FFI_Api_Version, major_version);
SAME(XlaVersion, minor, XLA_FFI_Api_Version, minor_version);
SAME(XlaErrorCreateArgs, message, XLA_FFI_Error_Create_Args, message);
SAME(XlaErrorCreateArgs, code, XLA_FFI_Error_Create_Args, errc);
SAME(XlaFutureCreateArgs, future, XLA_FFI_Future_Create_Args, future);
SAME(XlaFutureSetAvailableArgs, future, XLA_FFI_Future_SetAvailable_Args, future);
SAME(XlaFutureSetErrorArgs, future, XLA_FFI_Future_SetError_Args, future);
SAME(XlaFutureSetErrorArgs, error, XLA_FFI_Future_SetError_Args, error);
SAME(XlaBuffer, dtype, XLA_FFI_Buffer, dtype);
SAME(XlaBuffer, data, XLA_FFI_Buffer, data);
SAME(XlaBuffer, rank, XLA_FFI_Buffer, rank);
SAME(XlaBuffer, dims, XLA_FFI_Buffer, dims);
SAME(XlaBuffers, size, XLA_FFI_Args, size);
SAME(XlaBuffers, types, XLA_FFI_Args, types);
SAME(XlaBuffers, items, XLA_FFI_Args, args);
SAME(XlaBuffers, size, XLA_FFI_Rets, size);
SAME(XlaBuffers, items, XLA_FFI_Rets, rets);
SAME(XlaByteSpan, data, XLA_FFI_ByteSpan, ptr);
SAME(XlaByteSpan, size, XLA_FFI_ByteSpan, len);
SAME(XlaScalar, dtype, XLA_FFI_Scalar, dtype);
SAME(XlaScalar, value, XLA_FFI_Scalar, value);
SAME(XlaAttributes, size, XLA_FFI_Attrs, size);
SAME(XlaAttributes, types, XLA_FFI_Attrs, types);
SAME(XlaAttributes, names, XLA_FFI_Attrs, names);
SAME(XlaAttributes, items, XLA_FFI_Attrs, attrs);
SAME(XlaHandlerRegisterArgs, name, XLA_FFI_Handler_Register_Args, name);
SAME(XlaHandlerRegisterArgs, platform, XLA_FFI_Handler_Register_Args, platform);
SAME(XlaHandlerRegisterArgs, handlers, XLA_FFI_Handler_Register_Args, bundle);
SAME(XlaHandlerRegisterArgs, traits, XLA_FFI_Handler_Register_Args, traits);
SAME(XlaHandlers, execute, XLA_FFI_Handler_Bundle, execute);
SAME(XlaErrorGetMessageArgs, error, XLA_FFI_Error_GetMessage_Args, error);
SAME(XlaErrorGetMessageArgs, message, XLA_FFI_Error_GetMessage_Args, message);
SAME(XlaApi, version, XLA_FFI_Api, api_version);
SAME(XlaApi, Error_Create, XLA_FFI_Api, XLA_FFI_Error_Create);
SAME(XlaApi, Error_GetMessage, XLA_FFI_Api, XLA_FFI_Error_GetMessage);
SAME(XlaApi, Handler_Register, XLA_FFI_Api, XLA_FFI_Handler_Register);
SAME(XlaApi, ThreadPool_NumThreads, XLA_FFI_Api, XLA_FFI_ThreadPool_NumThreads);
SAME(XlaApi, Future_Create, XLA_FFI_Api, XLA_FFI_Future_Create);
SAME(XlaApi, Future_SetAvailable, XLA_FFI_Api, XLA_FFI_Future_SetAvailable);
SAME(XlaApi, Future_SetError, XLA_FFI_Api, XLA_FFI_Future_SetError);
SAME(XlaCallFrame, extension, XLA_FFI_CallFrame, extension_start);
SAME(XlaCallFrame, api, XLA_FFI_CallFrame, api);
SAME(XlaCallFrame, stage, XLA_FFI_CallFrame, stage);
SAME(XlaCallFrame, arguments, XLA_FFI_CallFrame, args);
SAME(XlaCallFrame, results, XLA_FFI_CallFrame, rets);
SAME(XlaCallFrame, attributes, XLA_FFI_CallFrame, attrs);
SAME(XlaCallFrame, future, XLA_FFI_CallFrame, future);
SAME(XlaMetadata, version, XLA_FFI_Metadata, api_version);
SAME(XlaMetadata, traits, XLA_FFI_Metadata, traits);
SAME(XlaMetadataExtension, metadata, XLA_FFI_Metadata_Extension, metadata);

static_assert(kXlaMetadataExtension == XLA_FFI_Extension_Metadata, "");
static_assert(kXlaExecuteStage == XLA_FFI_ExecutionStage_EXECUTE, "");
static_assert(kXlaScalar == XLA_FFI_AttrType_SCALAR, "");
static_assert(kXlaString == XLA_FFI_AttrType_STRING, "");
static_assert(kXlaTokenType == XLA_FFI_DataType_TOKEN, "");
static_assert(kXlaInt64Type == XLA_FFI_DataType_S64, "");
static_assert(XLA_FFI_API_MAJOR == 0 && XLA_FFI_API_MINOR >= 1, "");
