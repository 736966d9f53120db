/* A program that computes with a model it maps: reads every byte of FILE, PASSES times, through one mapping, and
 * prints a sum that depends on all of them. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int fd = open(argv[1], O_RDONLY);
  struct stat st;
  if (fd < 0 || fstat(fd, &st) != 0) return 3;
  const uint8_t* view = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
  if (view == MAP_FAILED) return 3;
  uint64_t sum = 0;
  for (int pass = atoi(argv[2]); pass > 0; --pass) {
    for (off_t i = 0; i < st.st_size; ++i) sum = sum * 31 + view[i];
  }
  printf("%016llx\n", (unsigned long long)sum);
  /* As a program would that reads other weights under the pager, or that never says the same twice. */
  if (getenv("SWEEP_READER_TELLS_PRELOAD") != NULL && getenv("LD_PRELOAD") != NULL) printf("preload\n");
  if (getenv("SWEEP_READER_TELLS_PID") != NULL) printf("%d\n", (int)getpid());
  return 0;
}
