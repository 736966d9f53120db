/* residctl's C interface: authority over which parts of a model file are in memory.
 *
 * A pager keeps at most a budget of bytes of all mapped files resident. A file is mapped as with
 * mmap(2), read only; a touch of an absent part reads it from the disk, and what the policy names
 * is given up for it. Linux 5.14 or later.
 *
 * Errors: functions return 0 or a positive enum resid_status; resid_last_error() has the whole
 * message of the calling thread's last failure, in the form `residctl: what : why : what to do`.
 *
 * Threads: any function may be called from any thread; none from a signal handler.
 *
 * Stability: structures begin with their size, so that they may grow; functions are only added.
 */
#ifndef RESID_RESID_H
#define RESID_RESID_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RESID_API __attribute__((visibility("default")))
#else
#define RESID_API
#endif

#define RESID_VERSION_MAJOR 0
#define RESID_VERSION_MINOR 1
#define RESID_VERSION_PATCH 0

/* The version of the library in use, as "0.1.0". */
RESID_API const char* resid_version(void);

typedef struct resid_pager resid_pager;
typedef struct resid_pin resid_pin;

struct resid_options {
  size_t struct_size;       /* sizeof(struct resid_options) of the caller */
  uint64_t budget_bytes;    /* at least two chunks; no default */
  uint64_t chunk_max;       /* largest chunk, a multiple of 4096; 2 MiB */
  const char* policy;       /* "layer_order_declared", "layer_order_learned", "layer_order_spread",
                             * "lru" */
  uint32_t fetch_workers;   /* threads that fill in what was read; 4 */
  uint32_t prefetch_depth;  /* chunks read ahead in the known order; 0 = none */
  uint32_t protect_current; /* 1: never give up the chunk in use nor the one before it */
  uint32_t
      faults_are_access; /* 1 (default): a fault tells the position; 0: only resid_access does */
};
/* Fills in the defaults; `struct_size` is the caller's sizeof(struct resid_options), so that a
 * program built against an older header works with a newer library. */
RESID_API void resid_options_init(struct resid_options* options, size_t struct_size);

/* Starts a pager. Fails where swap could undo residency, where userfaultfd is denied, or on bad
 * options. */
RESID_API int resid_create(const struct resid_options* options, resid_pager** pager);

/* Unmaps everything and stops the pager's threads. No mapping may be in use any more; pins of it
 * must have been released. NULL is allowed. */
RESID_API void resid_destroy(resid_pager* pager);

/* Maps the whole of one file: GGUF and safetensors are cut along their tensors, other files into
 * equal chunks. A file may be mapped more than once; its chunks are kept once. */
RESID_API int resid_map(resid_pager* pager, const char* path, const void** address,
                        uint64_t* bytes);
RESID_API int resid_unmap(resid_pager* pager, const void* address, uint64_t bytes);

/* Fetches a range and keeps it resident until resid_unpin. Fails with RESID_INFEASIBLE when the
 * pins would leave less than two chunks of the budget. */
RESID_API int resid_pin_range(resid_pager* pager, const void* address, uint64_t bytes,
                              resid_pin** pin);
RESID_API void resid_unpin(resid_pin* pin);

/* Asks for a range ahead of need. A hint: it may be dropped. */
RESID_API int resid_will_need(resid_pager* pager, const void* address, uint64_t bytes);

/* Tells that the workload is reading (or about to read) the chunk at `address`. */
RESID_API int resid_access(resid_pager* pager, const void* address);

/* The order in which the workload reads, as one cycle over ranges of the mappings. Replaces what
 * was derived from the model's layers. */
struct resid_range {
  const void* address;
  uint64_t bytes;
};
RESID_API int resid_declare_order(resid_pager* pager, const struct resid_range* ranges,
                                  size_t count);

/* How many bytes of a range are resident now. */
RESID_API int resid_resident(resid_pager* pager, const void* address, uint64_t bytes,
                             uint64_t* resident);

/* Changes the budget; evicts down to it before it returns. */
RESID_API int resid_set_budget(resid_pager* pager, uint64_t bytes);

struct resid_stats {
  size_t struct_size; /* set by the caller to sizeof(struct resid_stats) */
  uint64_t budget_bytes;
  uint64_t resident_bytes;
  uint64_t resident_peak_bytes;
  uint64_t kernel_bytes_peak; /* the kernel's own figure at every check */
  uint64_t bytes_fetched;
  uint64_t bytes_punched;
  uint64_t fetches;
  uint64_t evictions;
  uint64_t faults_missing;
  uint64_t faults_minor;
  uint64_t prefetch_issued;
  uint64_t prefetch_useful;
  uint64_t fault_p50_ns;
  uint64_t fault_p99_ns;
};
/* Fills in as much as the caller's structure holds. */
RESID_API int resid_get_stats(resid_pager* pager, struct resid_stats* stats);

/* The message of the calling thread's last failure; "" when there was none. Valid until its next
 * call. */
RESID_API const char* resid_last_error(void);

enum resid_status {
  RESID_OK = 0,
  RESID_USAGE = 1,
  RESID_NO_SUCH_FILE = 2,
  RESID_BAD_FILE = 3, /* unreadable, empty, damaged or of an unknown kind */
  RESID_BUDGET_TOO_SMALL = 4,
  RESID_INFEASIBLE = 5,
  RESID_NO_USERFAULTFD = 6,
  RESID_SWAP_UNSAFE = 7,
  RESID_STORE_CHANGED = 8,
  RESID_READ_FAILED = 9,
  RESID_OUT_OF_MEMORY = 10,
  RESID_SYSTEM = 11,
  RESID_INTERNAL = 12
};

#ifdef __cplusplus
}
#endif
#endif
