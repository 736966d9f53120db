/* Built against an installed tree alone (install_tree_test.py): sums a model's bytes under a budget
 * of a quarter of it, and by stdio. Exit 3 where this machine cannot page. */
#include <resid/resid.h>
#include <stdio.h>

int main(int argc, char** argv) {
  FILE* file = argc == 2 ? fopen(argv[1], "rb") : NULL;
  struct resid_options options;
  resid_pager* pager = NULL;
  const void* view = NULL;
  uint64_t bytes = 0, paged = 0, plain = 0;
  resid_options_init(&options, sizeof options);
  options.budget_bytes = 6 << 20;
  if (file == NULL) return 2;
  const int status = resid_create(&options, &pager);
  if (status != 0) {
    fprintf(stderr, "%s\n", resid_last_error());
    return status == RESID_NO_USERFAULTFD || status == RESID_SWAP_UNSAFE ? 3 : 1;
  }
  if (resid_map(pager, argv[1], &view, &bytes) != 0)
    return fprintf(stderr, "%s\n", resid_last_error()), 1;
  for (uint64_t i = 0; i < bytes; ++i)
    paged = paged * 31 + ((const unsigned char*)view)[i];
  for (int c; (c = fgetc(file)) != EOF;)
    plain = plain * 31 + (unsigned char)c;
  resid_destroy(pager);
  fclose(file);
  printf("libresid %s: %llu bytes, %s\n", resid_version(), (unsigned long long)bytes,
         paged == plain ? "equal" : "DIFFER");
  return paged == plain ? 0 : 1;
}
