// The part of XLA's C interface for foreign functions that the handlers touch, declared by
// ourselves. So they are built without jaxlib and TensorFlow, have no symbol of XLA, and serve many
// releases: every function of XLA comes through a table that the call frame points to.
//
// Valid from jaxlib 0.4.38 and TensorFlow 2.19 on: before, the functions of futures had another
// place in the table, under the same version number (see FuturesOf). Since then XLA only appends
// fields. Python refuses releases that are older still.
// Units: sizes in bytes. Names follow XLA's header (xla/ffi/api/c_api.h) without the prefix.
#pragma once

#include <cstddef>
#include <cstdint>

namespace syrtos_xla {

extern "C" {
struct XlaError;    // XLA's own
struct XlaFuture;   // XLA's own
struct XlaContext;  // XLA's own

struct XlaExtension {
  size_t struct_size;
  int type;
  XlaExtension* next;
};
struct XlaVersion {
  size_t struct_size;
  XlaExtension* extension;
  int major;
  int minor;
};
struct XlaErrorCreateArgs {
  size_t struct_size;
  XlaExtension* extension;
  const char* message;
  int code;
};
struct XlaFutureCreateArgs {
  size_t struct_size;
  XlaExtension* extension;
  XlaFuture* future;  // out
};
struct XlaFutureSetAvailableArgs {
  size_t struct_size;
  XlaExtension* extension;
  XlaFuture* future;
};
struct XlaFutureSetErrorArgs {
  size_t struct_size;
  XlaExtension* extension;
  XlaFuture* future;
  XlaError* error;  // taken over
};
struct XlaBuffer {
  size_t struct_size;
  XlaExtension* extension;
  int dtype;
  void* data;
  int64_t rank;
  int64_t* dims;
};
struct XlaBuffers {
  size_t struct_size;
  XlaExtension* extension;
  int64_t size;
  int* types;  // kXlaBuffer for each
  void** items;
};
struct XlaByteSpan {
  const char* data;
  size_t size;
};
struct XlaScalar {
  int dtype;
  void* value;
};
struct XlaAttributes {
  size_t struct_size;
  XlaExtension* extension;
  int64_t size;
  int* types;
  XlaByteSpan** names;
  void** items;
};
struct XlaHandlers {
  void* instantiate;
  void* prepare;
  void* initialize;
  XlaError* (*execute)(struct XlaCallFrame*);
};
struct XlaHandlerRegisterArgs {
  size_t struct_size;
  XlaExtension* extension;
  XlaByteSpan name;
  XlaByteSpan platform;
  XlaHandlers handlers;
  uint32_t traits;
};
struct XlaErrorGetMessageArgs {
  size_t struct_size;
  XlaExtension* extension;
  XlaError* error;
  const char* message;  // out; XLA's own
};
struct XlaApi {
  size_t struct_size;  // too small in older releases: not to be relied on
  XlaExtension* extension;
  XlaVersion version;
  const void* internal;
  XlaError* (*Error_Create)(XlaErrorCreateArgs*);
  void (*Error_GetMessage)(XlaErrorGetMessageArgs*);
  void (*Error_Destroy)();  // not used
  XlaError* (*Handler_Register)(XlaHandlerRegisterArgs*);
  // Stream_Get, Type_Register, ExecutionContext_Get, State_Set, State_Get, DeviceMemory_Allocate,
  // DeviceMemory_Free, ThreadPool_Schedule
  void (*not_used[8])();
  void (*ThreadPool_NumThreads)();  // not used
  XlaError* (*Future_Create)(XlaFutureCreateArgs*);
  XlaError* (*Future_SetAvailable)(XlaFutureSetAvailableArgs*);
  XlaError* (*Future_SetError)(XlaFutureSetErrorArgs*);
};
struct XlaCallFrame {
  size_t struct_size;  // does not count `future`: not to be relied on
  XlaExtension* extension;
  const XlaApi* api;
  XlaContext* context;
  int stage;
  XlaBuffers arguments;
  XlaBuffers results;
  XlaAttributes attributes;
  XlaFuture* future;  // out: null if the call has ended when the handler returns
};
struct XlaMetadata {
  size_t struct_size;
  XlaVersion version;
  uint32_t traits;
  // Newer releases have more fields here, which stay as XLA has set them.
};
struct XlaMetadataExtension {
  XlaExtension base;
  XlaMetadata* metadata;
};
}

constexpr int kXlaMetadataExtension = 1;
constexpr int kXlaExecuteStage = 3;
constexpr int kXlaScalar = 3;
constexpr int kXlaString = 4;
constexpr int kXlaTokenType = 17;
constexpr int kXlaInt64Type = 5;

}  // namespace syrtos_xla
