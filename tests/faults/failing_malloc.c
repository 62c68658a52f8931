// Loaded before the C library (LD_PRELOAD): makes one chosen allocation of the program fail, as on a machine
// without memory.
//   KILN_FAIL_ALLOCATION=N     the N-th alone; N+: that and every one after it
//   KILN_ALLOCATIONS=FILE      the number of allocations, written when the program ends
// Counted from the start of the program's own code: what the loader and the libraries do before is not ours
// to fix. Operator new, strdup, stdio and the like end in these functions. Mappings count where the program
// itself asks for them.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

// The C library's own, under names that need no look-up: a look-up allocates.
extern void* __libc_malloc(size_t size);
extern void* __libc_calloc(size_t count, size_t size);
extern void* __libc_realloc(void* old, size_t size);
extern void* __libc_memalign(size_t alignment, size_t size);

static atomic_bool counting;
static atomic_long allocations;
static long chosen = -1;
static bool all_after;

static bool fails(void) {
  if (!atomic_load_explicit(&counting, memory_order_relaxed)) return false;
  const long n = atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed) + 1;
  if (chosen < 1 || n < chosen || (n > chosen && !all_after)) return false;
  errno = ENOMEM;
  return true;
}

void* malloc(size_t size) { return fails() ? NULL : __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return fails() ? NULL : __libc_calloc(count, size); }
void* realloc(void* old, size_t size) { return fails() ? NULL : __libc_realloc(old, size); }
void* memalign(size_t alignment, size_t size) { return fails() ? NULL : __libc_memalign(alignment, size); }
void* aligned_alloc(size_t alignment, size_t size) {
  return fails() ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void** out, size_t alignment, size_t size) {
  if (fails()) return ENOMEM;
  void* const memory = __libc_memalign(alignment, size);
  if (memory == NULL) return ENOMEM;
  *out = memory;
  return 0;
}

void* mmap(void* at, size_t size, int protection, int flags, int file, off_t offset) {
  if (fails()) return MAP_FAILED;
  return (void*)syscall(SYS_mmap, at, size, protection, flags, file, offset);
}
void* mmap64(void* at, size_t size, int protection, int flags, int file, off64_t offset) {
  return mmap(at, size, protection, flags, file, offset);
}

static void write_count(void) {
  atomic_store(&counting, false);
  const char* const path = getenv("KILN_ALLOCATIONS");
  if (path == NULL) return;
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return;
  dprintf(file, "%ld\n", atomic_load(&allocations));
  close(file);
}

static int (*program)(int, char**, char**);

static int counted_main(int argc, char** argv, char** environment) {
  return program(argc, argv, environment);
}

// The C library calls the program's static initialisers and main() from here.
int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void* stack_end) {
  typedef int Start(int (*)(int, char**, char**), int, char**, void (*)(void), void (*)(void), void (*)(void),
                    void*);
  Start* const start = (Start*)(uintptr_t)dlsym(RTLD_NEXT, "__libc_start_main");
  const char* const which = getenv("KILN_FAIL_ALLOCATION");
  if (which != NULL) {
    char* end;
    chosen = strtol(which, &end, 10);
    all_after = *end == '+';
  }
  program = main;
  atexit(write_count);
  atomic_store(&counting, true);
  return start(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}
