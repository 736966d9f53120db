#pragma once
/* What libggml-resid.so and the preload library say to each other. Both are of one build and are
 * installed together; the library finds the functions by name among the program's symbols, and does
 * nothing where they are missing, which is how it behaves outside `residctl run`. */

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One matrix product over a stacked expert tensor that is about to be computed. `ids` points at 32
 * bit expert numbers, `used` for each of `tokens` rows: row t, column u lies at
 * t * token_stride + u * used_stride bytes. Strides are in bytes; the memory is the host's. */
struct resid_routed {
  const void* stack; /* the tensor's first byte, in the mapping of the model */
  uint32_t experts;
  uint32_t used;
  uint32_t tokens;
  uint64_t used_stride;
  uint64_t token_stride;
  const void* ids;
  /* What the experts are applied to: `state_width` floats for each token, state_stride bytes apart;
   * null where it has another form. */
  const float* state;
  uint32_t state_width;
  uint64_t state_stride;
};

/* What ggml_version() says of the ggml whose structures libggml-resid.so is made of. It refuses any
 * other, loudly, as ggml does with every backend that refuses; who loads it asks first. */
#define RESID_GGML_VERSION "0.23.0"
/* What ggml's registry calls it. */
#define RESID_GGML_NAME "resid"

#define RESID_GGML_ATTACH "resid_ggml_attach"
#define RESID_GGML_CONTROLS "resid_ggml_controls"
#define RESID_GGML_ROUTED "resid_ggml_routed"

/* The backend is in place: routing will be told of. Returns 0 when nobody listens. */
typedef int (*resid_ggml_attach_t)(void);
/* Whether the byte lies in a mapping that the pager controls. Any thread. */
typedef int (*resid_ggml_controls_t)(const void* address);
/* Any thread; returns when the reads are queued, which takes microseconds. */
typedef void (*resid_ggml_routed_t)(const struct resid_routed* routed);

#ifdef __cplusplus
}
#endif
