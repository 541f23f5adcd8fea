// The native library in a process of its own, under an emulator: reads calls from stdin, answers on stdout.
//
// A call brings the memory that it works on. All numbers are 64 bits wide; both machines have the same byte order and
// the same structs (processor.py asks elmo_bytes).
//   name; regions (bytes of each); pointers (region, offset -> region, offset); arguments (a number, or a place); text?
// The answer: what was returned, or the text that it points to; then the bytes of all regions.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <string>
#include <vector>

constexpr int MOST = 12;  // arguments; all are integers or pointers, and what a function does not take it does not see
typedef int64_t (*Function)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                            int64_t, int64_t);

static void end(const char* why) {
  fprintf(stderr, "serve: %s\n", why);
  exit(1);
}

static void read(void* into, size_t count) {
  if (count && fread(into, 1, count, stdin) != count) exit(0);  // whoever asked has gone
}

static int64_t number() {
  int64_t value;
  read(&value, sizeof value);
  return value;
}

static std::string text() {
  std::string all(number(), '\0');
  read(&all[0], all.size());
  return all;
}

struct Region {
  explicit Region(int64_t size) : size(size), bytes((char*)aligned_alloc(64, (size + 127) / 64 * 64)) {
    read(bytes, size);
  }
  int64_t size;
  char* bytes;
};

static void write(const void* from, size_t count) {
  if (fwrite(from, 1, count, stdout) != count) end("the answer is not read");
}

int main(int count, char** given) {
  if (count != 2) end("expected the library's path");
  void* library = dlopen(given[1], RTLD_NOW);
  if (!library) end(dlerror());
  for (;;) {
    const std::string name = text();
    std::vector<Region> regions;
    for (int64_t left = number(); left; left--) regions.emplace_back(number());
    for (int64_t left = number(); left; left--) {
      const int64_t region = number(), offset = number(), target = number(), at = number();
      char* const value = target < 0 ? nullptr : regions[target].bytes + at;
      memcpy(regions[region].bytes + offset, &value, sizeof value);
    }
    int64_t all[MOST] = {0};
    const int64_t arguments = number();
    if (arguments > MOST) end("more arguments than expected");
    for (int64_t i = 0; i < arguments; i++) {
      const int64_t region = number(), value = number();
      all[i] = region < 0 ? value : (int64_t)(regions[region].bytes + value);
    }
    const Function function = (Function)dlsym(library, name.c_str());
    if (!function) end(dlerror());
    int64_t result = function(all[0], all[1], all[2], all[3], all[4], all[5], all[6], all[7], all[8], all[9], all[10],
                              all[11]);
    if (number()) {
      const char* said = (const char*)result;
      result = (int64_t)strlen(said);
      write(&result, sizeof result);
      write(said, result);
    } else {
      write(&result, sizeof result);
    }
    for (const Region& region : regions) {
      write(region.bytes, region.size);
      free(region.bytes);
    }
    fflush(stdout);
  }
}
