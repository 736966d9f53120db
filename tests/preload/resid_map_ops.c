// One way of handling a mapping at a time, each checked against pread(2). Passes with and without
// residctl: what it expects is what the manual pages say of a read-only file mapping.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define MIB (1024UL * 1024)

static int g_fd;
static size_t g_size;

#define CHECK(condition)                                                                  \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      fprintf(stderr, "line %d: %s (errno %s)\n", __LINE__, #condition, strerror(errno)); \
      exit(1);                                                                            \
    }                                                                                     \
  } while (0)

static int under_control(void) {
  return getenv("RESIDCTL_RUN_PAGE") != NULL;
}

static unsigned char* map_all(int flags) {
  unsigned char* p = mmap(NULL, g_size, PROT_READ, flags, g_fd, 0);
  CHECK(p != MAP_FAILED);
  return p;
}

// Whether `data` holds the file's bytes [offset, offset + bytes).
static int same(const unsigned char* data, size_t offset, size_t bytes) {
  static unsigned char expected[256 * 1024];
  for (size_t done = 0; done < bytes;) {
    size_t n = bytes - done < sizeof expected ? bytes - done : sizeof expected;
    if (pread(g_fd, expected, n, (off_t)(offset + done)) != (ssize_t)n) return 0;
    if (memcmp(data + done, expected, n) != 0) return 0;
    done += n;
  }
  return 1;
}

static int mapped(const void* address) {
  unsigned char vec;
  return mincore((void*)address, PAGE, &vec) == 0;
}

static void op_read(void) {
  unsigned char* p = map_all(MAP_SHARED);
  CHECK(same(p, 0, g_size));
  CHECK(same(p, 0, g_size));
  CHECK(munmap(p, g_size) == 0);
  CHECK(!mapped(p));
}

static void op_private(void) {
  unsigned char* p = map_all(MAP_PRIVATE);
  CHECK(same(p, 0, g_size));
}

static void op_populate(void) {
  CHECK(posix_fadvise(g_fd, 0, 0, POSIX_FADV_SEQUENTIAL) == 0);
  CHECK(posix_fadvise(g_fd, 0, 0, POSIX_FADV_WILLNEED) == 0);
  CHECK(readahead(g_fd, 0, g_size) == 0);
  unsigned char* p = map_all(MAP_SHARED | MAP_POPULATE);
  CHECK(posix_madvise(p, g_size, POSIX_MADV_WILLNEED) == 0);
  CHECK(same(p, 0, g_size));
}

static void op_twice(void) {
  unsigned char* a = map_all(MAP_SHARED);
  unsigned char* b = map_all(MAP_SHARED);
  CHECK(a != b);
  for (size_t at = 0; at + MIB <= g_size; at += MIB)
    CHECK(memcmp(a + at, b + at, MIB) == 0);
  CHECK(munmap(a, g_size) == 0);
  CHECK(same(b, 0, g_size));
  CHECK(munmap(b, g_size) == 0);
  a = map_all(MAP_SHARED);
  CHECK(same(a, 0, g_size));
}

static void op_offset(void) {
  unsigned char* p = mmap(NULL, MIB, PROT_READ, MAP_SHARED, g_fd, 3 * PAGE);
  CHECK(p != MAP_FAILED);
  CHECK(same(p, 3 * PAGE, MIB));
  errno = 0;
  CHECK(mmap(NULL, MIB, PROT_READ, MAP_SHARED, g_fd, 5) == MAP_FAILED && errno == EINVAL);
  CHECK(mmap(NULL, 0, PROT_READ, MAP_SHARED, g_fd, 0) == MAP_FAILED && errno == EINVAL);
  const int wr = open("/proc/self/exe", O_PATH);
  CHECK(mmap(NULL, MIB, PROT_READ, MAP_SHARED, wr, 0) == MAP_FAILED && errno == EBADF);
}

static void op_partial_munmap(void) {
  unsigned char* p = map_all(MAP_SHARED);
  CHECK(munmap(p + MIB, 2 * MIB) == 0);
  CHECK(!mapped(p + MIB) && !mapped(p + 3 * MIB - PAGE));
  CHECK(mapped(p + MIB - PAGE) && mapped(p + 3 * MIB));
  CHECK(same(p, 0, MIB));
  CHECK(same(p + 3 * MIB, 3 * MIB, g_size - 3 * MIB));
  CHECK(munmap(p, PAGE) == 0);
  CHECK(same(p + PAGE, PAGE, MIB - PAGE));
  errno = 0;
  CHECK(munmap(p + 1, PAGE) == -1 && errno == EINVAL);
  CHECK(munmap(p + PAGE, 0) == -1 && errno == EINVAL);
  CHECK(munmap(p, g_size) == 0);  // over holes, as munmap allows
  CHECK(!mapped(p + 3 * MIB));
}

// One munmap over the end of a view and the start of other memory.
static void op_spanning_munmap(void) {
  const size_t view = 2 * MIB;
  unsigned char* p =
      mmap(NULL, view + MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(p != MAP_FAILED);
  p[view] = 1;
  p[view + MIB - 1] = 2;
  CHECK(mmap(p, view, PROT_READ, MAP_SHARED | MAP_FIXED, g_fd, 0) == p);
  CHECK(same(p, 0, view));
  CHECK(munmap(p + view - PAGE, 2 * PAGE) == 0);
  CHECK(!mapped(p + view - PAGE) && !mapped(p + view));
  CHECK(same(p, 0, view - PAGE));
  CHECK(p[view + MIB - 1] == 2);
}

static void op_map_over(void) {
  unsigned char* p = map_all(MAP_SHARED);
  CHECK(same(p, 0, 4 * MIB));
  CHECK(mmap(p + MIB, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) == p + MIB);
  memset(p + MIB, 0xa5, MIB);
  CHECK(same(p, 0, MIB));
  CHECK(same(p + 2 * MIB, 2 * MIB, g_size - 2 * MIB));
  CHECK(p[MIB] == 0xa5 && p[2 * MIB - 1] == 0xa5);
  errno = 0;
  CHECK(mmap(p, MIB, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE, g_fd, 0) == MAP_FAILED &&
        errno == EEXIST);
}

static void op_mremap(void) {
  unsigned char* p = map_all(MAP_SHARED);
  CHECK(mremap(p, g_size, 2 * MIB, 0) == p);
  CHECK(!mapped(p + 2 * MIB));
  CHECK(same(p, 0, 2 * MIB));
  unsigned char* q = mremap(p, 2 * MIB, g_size, MREMAP_MAYMOVE);
  CHECK(q != MAP_FAILED);
  CHECK(same(q, 0, g_size));
  unsigned char* at = mmap(NULL, g_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(at != MAP_FAILED);
  unsigned char* r = mremap(q, g_size, g_size, MREMAP_MAYMOVE | MREMAP_FIXED, at);
  CHECK(r == at && !mapped(q));
  CHECK(same(r, 0, g_size));
  unsigned char* twin = mremap(r, 0, MIB, MREMAP_MAYMOVE);
  CHECK(twin != MAP_FAILED && twin != r);
  CHECK(same(twin, 0, MIB) && same(r, 0, MIB));
  // The middle moves away, both sides stay.
  unsigned char* middle = mremap(r + MIB, MIB, MIB, MREMAP_MAYMOVE | MREMAP_FIXED,
                                 mmap(NULL, MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  CHECK(middle != MAP_FAILED && !mapped(r + MIB));
  CHECK(same(middle, MIB, MIB) && same(r, 0, MIB) && same(r + 2 * MIB, 2 * MIB, MIB));
  errno = 0;
  CHECK(mremap(r + 1, MIB, MIB, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
  CHECK(mremap(r, MIB, 0, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
}

static sigjmp_buf g_jump;
static void on_signal(int number) {
  siglongjmp(g_jump, number);
}

static void op_mprotect(void) {
  struct sigaction action = {.sa_handler = on_signal};
  CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
  unsigned char* p = map_all(MAP_SHARED);
  errno = 0;
  CHECK(mprotect(p, MIB, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
  CHECK(mprotect(p, MIB, PROT_READ) == 0);
  CHECK(same(p, 0, MIB));
  // A page in the middle of what is one unit of residency.
  unsigned char* hole = p + 5 * MIB + 3 * PAGE;
  CHECK(mprotect(hole, PAGE, PROT_NONE) == 0);
  if (sigsetjmp(g_jump, 1) == 0) {
    volatile unsigned char byte = *(volatile unsigned char*)hole;
    (void)byte;
    CHECK(!"a page without access was read");
  }
  CHECK(same(p, 0, 5 * MIB + 3 * PAGE));
  CHECK(same(hole + PAGE, 5 * MIB + 4 * PAGE, g_size - 5 * MIB - 4 * PAGE));
  CHECK(mprotect(hole, PAGE, PROT_READ) == 0);
  CHECK(same(hole, 5 * MIB + 3 * PAGE, PAGE));
  if (sigsetjmp(g_jump, 1) == 0) {
    *(volatile unsigned char*)p = 1;
    CHECK(!"a read-only mapping was written");
  }
}

static void op_madvise(void) {
  unsigned char* p = map_all(MAP_SHARED);
  const int hints[] = {MADV_NORMAL,   MADV_RANDOM,   MADV_SEQUENTIAL, MADV_WILLNEED,
                       MADV_DONTNEED, MADV_DONTFORK, MADV_DOFORK,     MADV_DONTDUMP,
                       MADV_DODUMP,   MADV_COLD,     MADV_PAGEOUT,    MADV_POPULATE_READ};
  for (size_t i = 0; i < sizeof hints / sizeof *hints; ++i) {
    CHECK(madvise(p + MIB, 2 * MIB, hints[i]) == 0);
    CHECK(same(p, 0, 4 * MIB));
  }
  CHECK(posix_madvise(p, g_size, POSIX_MADV_RANDOM) == 0);
  CHECK(posix_madvise(p, g_size, POSIX_MADV_DONTNEED) == 0);
  errno = 0;
  CHECK(madvise(p, MIB, MADV_REMOVE) == -1 && errno == EACCES);
  CHECK(madvise(p, MIB, MADV_FREE) == -1 && errno == EINVAL);
  CHECK(madvise(p + 1, MIB, MADV_RANDOM) == -1 && errno == EINVAL);
  CHECK(same(p, 0, g_size));
}

static void op_mlock(void) {
  unsigned char* p = map_all(MAP_SHARED);
  CHECK(mlock(p + 100, MIB) == 0);
  CHECK(mlock2(p + 2 * MIB, PAGE, MLOCK_ONFAULT) == 0);
  CHECK(same(p, 0, g_size));
  CHECK(munlock(p + 512 * 1024, 4 * PAGE) == 0);  // splits the lock
  CHECK(same(p, 0, g_size));
  CHECK(munlock(p, 4 * MIB) == 0);
  // More than the budget of the test; without residctl there is none.
  errno = 0;
  if (under_control()) {
    CHECK(mlock(p, g_size) == -1 && errno == ENOMEM);
    CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
  }
  CHECK(mlock(p, MIB) == 0);
  CHECK(munmap(p, g_size) == 0);
  p = map_all(MAP_SHARED | MAP_LOCKED);
  CHECK(same(p, 0, g_size));
  CHECK(munlockall() == 0);
}

static void op_fork(void) {
  unsigned char* p = map_all(MAP_SHARED);
  CHECK(same(p, 0, MIB));
  CHECK(munmap(p + 2 * MIB, MIB) == 0);
  const pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    CHECK(same(p, 0, 2 * MIB) && same(p + 3 * MIB, 3 * MIB, g_size - 3 * MIB));
    CHECK(!mapped(p + 2 * MIB));
    CHECK(munmap(p, g_size) == 0);
    unsigned char* q = map_all(MAP_SHARED);  // plain, but right
    CHECK(same(q, 0, g_size));
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      CHECK(same(q, 0, g_size));
      _exit(0);
    }
    int status = 1;
    CHECK(waitpid(grandchild, &status, 0) == grandchild && status == 0);
    exit(0);
  }
  CHECK(same(p + 3 * MIB, 3 * MIB, g_size - 3 * MIB));
  int status = 1;
  CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(same(p, 0, 2 * MIB));
}

static void* read_all(void* data) {
  CHECK(same(data, 0, 64 * PAGE));
  for (size_t at = 0; at + PAGE <= g_size; at += 7 * PAGE) {
    volatile unsigned char byte = ((unsigned char*)data)[at];
    (void)byte;
  }
  return NULL;
}

static void op_threads_exit(void) {
  unsigned char* p = map_all(MAP_SHARED);
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i)
    CHECK(pthread_create(&threads[i], NULL, read_all, p) == 0);
  for (int i = 0; i < 2; ++i)
    CHECK(pthread_join(threads[i], NULL) == 0);
  exit(0);  // while the others may still wait for a page
}

static void compare_file(int fd, size_t bytes, size_t offset) {
  static unsigned char a[64 * 1024], b[64 * 1024];
  for (size_t done = 0; done < bytes;) {
    size_t n = bytes - done < sizeof a ? bytes - done : sizeof a;
    CHECK(pread(fd, a, n, (off_t)done) == (ssize_t)n);
    CHECK(pread(g_fd, b, n, (off_t)(offset + done)) == (ssize_t)n);
    CHECK(memcmp(a, b, n) == 0);
    done += n;
  }
}

static void write_all(int fd, const unsigned char* data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = write(fd, data + done, bytes - done);
    CHECK(n > 0);
    done += (size_t)n;
  }
}

// System calls that read the mapping. Each meets pages that were never touched before.
static void op_write(void) {
  unsigned char* p = map_all(MAP_SHARED);
  FILE* out = tmpfile();
  CHECK(out != NULL);
  const int fd = fileno(out);
  const size_t n = 3 * MIB / 2 + 123;
  write_all(fd, p, n);
  compare_file(fd, n, 0);
  CHECK(pwrite(fd, p + 2 * MIB, MIB, 0) == (ssize_t)MIB);
  compare_file(fd, MIB, 2 * MIB);
  char head[] = "head";
  struct iovec parts[3] = {{head, 4}, {p + 3 * MIB, MIB}, {p + 4 * MIB, 100}};
  CHECK(lseek(fd, 0, SEEK_SET) == 0 && writev(fd, parts, 3) == (ssize_t)(MIB + 104));
  CHECK(ftruncate(fd, 0) == 0 && pwritev(fd, parts + 1, 2, 0) == (ssize_t)(MIB + 100));
  compare_file(fd, MIB + 100, 3 * MIB);
  CHECK(ftruncate(fd, 0) == 0 && fseek(out, 0, SEEK_SET) == 0);
  CHECK(fwrite(p + 5 * MIB, 4, 3 * MIB / 4 + 1, out) == 3 * MIB / 4 + 1 && fflush(out) == 0);
  compare_file(fd, 3 * MIB + 4, 5 * MIB);
  CHECK(lseek(fd, 0, SEEK_SET) == 0);
  write_all(fd, p, g_size);  // many times the budget
  compare_file(fd, g_size, 0);
  fclose(out);
}

static void op_send(void) {
  unsigned char* p = map_all(MAP_SHARED);
  static unsigned char got[64 * 1024];
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
  CHECK(send(ends[0], p + MIB, 50000, 0) == 50000);
  CHECK(recv(ends[1], got, sizeof got, 0) == 50000 && same(got, MIB, 50000));
  struct iovec parts[2] = {{p + 2 * MIB, 1000}, {p + 4 * MIB, 2000}};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
  CHECK(sendmsg(ends[0], &message, 0) == 3000);
  CHECK(recv(ends[1], got, sizeof got, 0) == 3000);
  CHECK(same(got, 2 * MIB, 1000) && same(got + 1000, 4 * MIB, 2000));
  CHECK(write(ends[0], p + 6 * MIB, 40000) == 40000);
  CHECK(recv(ends[1], got, sizeof got, 0) == 40000 && same(got, 6 * MIB, 40000));
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  CHECK(sendto(ends[0], p + 5 * MIB, 30000, 0, NULL, 0) == 30000);
  CHECK(recv(ends[1], got, 30000, MSG_WAITALL) == 30000 && same(got, 5 * MIB, 30000));
}

// Reads on and on until somebody ends it.
static void op_hold(void) {
  unsigned char* p = map_all(MAP_SHARED);
  volatile unsigned char byte;
  // All of it once: with a budget below the file, something has been fetched, counted and given up.
  for (size_t at = 0; at < g_size; at += PAGE)
    byte = p[at];
  (void)byte;
  puts("ready");
  fflush(stdout);
  for (;;) {
    for (size_t at = 0; at < g_size; at += PAGE)
      byte = p[at];
  }
}

static void op_none(void) {
  puts("nothing mapped");
}
static void op_none_fails(void) {
  exit(7);
}

static void op_abort(void) {
  unsigned char* p = map_all(MAP_SHARED);
  CHECK(same(p, 0, MIB));
  abort();
}

static void op_writable(void) {
  unsigned char* p = mmap(NULL, g_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, g_fd, 0);
  CHECK(p != MAP_FAILED);
  p[0] ^= 1;
  CHECK(same(p + 1, 1, g_size - 1));
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*run)(void);
  } ops[] = {{"read", op_read},
             {"private", op_private},
             {"populate", op_populate},
             {"twice", op_twice},
             {"offset", op_offset},
             {"partial_munmap", op_partial_munmap},
             {"spanning_munmap", op_spanning_munmap},
             {"map_over", op_map_over},
             {"mremap", op_mremap},
             {"mprotect", op_mprotect},
             {"madvise", op_madvise},
             {"mlock", op_mlock},
             {"fork", op_fork},
             {"threads_exit", op_threads_exit},
             {"write", op_write},
             {"send", op_send},
             {"hold", op_hold},
             {"none", op_none},
             {"none_fails", op_none_fails},
             {"abort", op_abort},
             {"writable", op_writable}};
  if (argc != 3) return 2;
  g_fd = open(argv[2], O_RDONLY);
  struct stat st;
  CHECK(g_fd >= 0 && fstat(g_fd, &st) == 0);
  g_size = (size_t)st.st_size;
  for (size_t i = 0; i < sizeof ops / sizeof *ops; ++i) {
    if (strcmp(ops[i].name, argv[1]) == 0) {
      ops[i].run();
      return 0;
    }
  }
  fprintf(stderr, "no such operation: %s\n", argv[1]);
  return 2;
}
