// Maps a file, prints the FNV-1a hash of all its bytes. Knows nothing of residctl.
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: %s FILE [PASSES]\n", argv[0]);
    return 2;
  }
  const int passes = argc > 2 ? atoi(argv[2]) : 1;
  const int fd = open(argv[1], O_RDONLY);
  struct stat st;
  if (fd < 0 || fstat(fd, &st) != 0) {
    perror(argv[1]);
    return 1;
  }
  const size_t size = (size_t)st.st_size;
  const unsigned char* data = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    perror("mmap");
    return 1;
  }
  close(fd);
  for (int pass = 0; pass < passes; ++pass) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; ++i) {
      hash = (hash ^ data[i]) * 0x100000001b3u;
    }
    printf("%016" PRIx64 "\n", hash);
  }
  return 0;
}
