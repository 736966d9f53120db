/* The C interface from C: map a model under a quarter of its size, read it all, compare. */

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "resid/resid.h"

static int failures = 0;

static void check(int ok, const char* what) {
  if (ok) return;
  fprintf(stderr, "failed: %s (%s)\n", what, resid_last_error());
  ++failures;
}

static unsigned char* read_plain(const char* path, size_t* bytes) {
  FILE* f = fopen(path, "rb");
  unsigned char* data = NULL;
  if (f == NULL) return NULL;
  fseek(f, 0, SEEK_END);
  *bytes = (size_t)ftell(f);
  rewind(f);
  data = malloc(*bytes);
  if (data != NULL && fread(data, 1, *bytes, f) != *bytes) {
    free(data);
    data = NULL;
  }
  fclose(f);
  return data;
}

int main(int argc, char** argv) {
  struct resid_options options;
  struct resid_stats stats = {0};
  struct resid_range order[2];
  resid_pager* pager = NULL;
  resid_pin* pin = NULL;
  const void* view = NULL;
  const void* again = NULL;
  uint64_t bytes = 0;
  uint64_t resident = 0;
  size_t plain_bytes = 0;
  unsigned char* plain = NULL;
  if (argc != 2) return 2;
  plain = read_plain(argv[1], &plain_bytes);
  if (plain == NULL) return 2;

  resid_options_init(&options, sizeof options);
  options.budget_bytes = plain_bytes / 4;
  if (resid_create(&options, &pager) == RESID_NO_USERFAULTFD) {
    printf("skipped: %s\n", resid_last_error());
    return 77;
  }
  check(pager != NULL, "resid_create");
  if (pager == NULL) return 1;
  check(resid_map(pager, "/nowhere/at/all", &view, &bytes) == RESID_NO_SUCH_FILE, "no such file");
  check(strstr(resid_last_error(), "/nowhere/at/all") != NULL, "the message names the file");
  check(resid_map(pager, "/", &view, &bytes) == RESID_BAD_FILE, "a folder is no model");
  check(resid_map(pager, argv[1], &view, &bytes) == RESID_OK, "resid_map");
  if (view == NULL) return 1;
  check(bytes == plain_bytes, "the mapping has the file's size");
  check(memcmp(view, plain, plain_bytes) == 0, "the bytes are the file's");
  check(resid_map(pager, argv[1], &again, &bytes) == RESID_OK, "a second mapping");
  check(memcmp(again, plain, plain_bytes) == 0, "the same bytes there");

  check(resid_pin_range(pager, (const char*)view + 1000000, 100000, &pin) == RESID_OK, "pin");
  check(memcmp(view, plain, plain_bytes) == 0, "a scan under the pin");
  check(resid_resident(pager, (const char*)view + 1000000, 100000, &resident) == RESID_OK &&
            resident == 100000,
        "the pinned range is resident");
  resid_unpin(pin);
  check(resid_pin_range(pager, view, bytes, &pin) == RESID_INFEASIBLE, "pinning all is refused");

  order[0].address = (const char*)view + plain_bytes / 2;
  order[0].bytes = plain_bytes / 2;
  order[1].address = view;
  order[1].bytes = plain_bytes / 2;
  check(resid_declare_order(pager, order, 2) == RESID_OK, "declare_order");
  check(resid_access(pager, view) == RESID_OK, "access");
  check(resid_access(pager, plain) == RESID_USAGE, "an address that is not mapped");
  check(resid_will_need(pager, view, 1000000) == RESID_OK, "will_need");
  check(resid_set_budget(pager, 1) == RESID_BUDGET_TOO_SMALL, "a budget of one byte");
  check(resid_set_budget(pager, plain_bytes / 3) == RESID_OK, "set_budget");
  check(memcmp(view, plain, plain_bytes) == 0, "the bytes after all that");

  check(resid_get_stats(pager, &stats) == RESID_USAGE, "struct_size must be set");
  stats.struct_size = offsetof(struct resid_stats, bytes_fetched);
  stats.bytes_fetched = 77;
  check(resid_get_stats(pager, &stats) == RESID_OK && stats.bytes_fetched == 77 && stats.budget_bytes != 0,
        "an older, smaller structure is filled as far as it goes");
  stats.struct_size = sizeof stats;
  check(resid_get_stats(pager, &stats) == RESID_OK, "get_stats");
  check(stats.bytes_fetched > plain_bytes, "it was read more than once");
  check(stats.resident_peak_bytes <= plain_bytes / 3, "the budget was kept");
  check(resid_unmap(pager, again, bytes) == RESID_OK, "unmap");
  check(resid_unmap(pager, again, bytes) == RESID_USAGE, "unmap twice");
  resid_destroy(pager);
  resid_destroy(NULL);
  free(plain);
  if (failures == 0) printf("all of the C interface behaves\n");
  return failures == 0 ? 0 : 1;
}
