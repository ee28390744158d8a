/* The C face of libsyrtos.so for framework op libraries (TensorFlow, JAX). The only installed
 * header.
 *
 * A versioned table of functions: ask for the version you were built against; NULL means that the
 * library is older. Nothing throws, nothing depends on Python or on a framework. All functions may
 * be called from any thread. The table works on the process's current engine, which the Python
 * session registers in init() and removes in shutdown().
 */
#ifndef SYRTOS_C_API_H_
#define SYRTOS_C_API_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SYRTOS_C_API_VERSION 1

/* Numbers of syrtos::StatusCode, DType, CollectiveKind and ReduceOp (base/status.h, base/dtype.h,
 * collectives/collective.h). */
typedef struct SyrtosPart {
  const char* name; /* may be "" */
  int32_t dtype;
  uint32_t item_bytes; /* used with the opaque dtype only */
  int32_t ndim;
  const int64_t* dims;
  const void* input;
  void* output;       /* NULL: allocate() is called when the shape is known */
  int32_t num_splits; /* alltoall; 0: even */
  const int64_t* splits;
} SyrtosPart;

/* Everything is copied by submit, except the memory of the tensors, which must stay until done().
 */
typedef struct SyrtosRequest {
  int32_t kind;
  const char* name; /* "": unnamed, matched by call order */
  uint32_t group;
  int32_t op;
  double prescale;
  double postscale;
  int32_t root; /* global rank */
  int32_t num_parts;
  const SyrtosPart* parts;
  void* user; /* handed back */
  /* Returns memory for output `part` of this shape, or NULL (that ends the engine: the other ranks
   * are already at work). Called on whichever thread drives the engine. */
  void* (*allocate)(void* user, int32_t part, const int64_t* dims, int32_t ndim);
  /* Called exactly once if submit returned 0, on the engine's thread. code 0 = ok. `message` is
   * valid during the call only. */
  void (*done)(void* user, int32_t code, const char* message);
  /* May be NULL. Called before done() for each part of an alltoall: rows received from each
   * position. */
  void (*received)(void* user, int32_t part, const int64_t* rows, int32_t num_rows);
} SyrtosRequest;

typedef struct SyrtosApi {
  uint32_t version;
  uint32_t struct_size;
  /* 0, or a status code with the text copied into error (always terminated). */
  int32_t (*submit)(const SyrtosRequest* request, char* error, size_t error_size);
  /* -1 without an engine. */
  int32_t (*rank)(void);
  int32_t (*size)(void);
  /* Number of ranks in a group and the caller's position, -1 if unknown. */
  int32_t (*group_size)(uint32_t group);
  int32_t (*group_rank)(uint32_t group);
} SyrtosApi;

const SyrtosApi* syrtos_api(uint32_t version);

#ifdef __cplusplus
}
#endif
#endif /* SYRTOS_C_API_H_ */
