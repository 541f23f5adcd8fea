// What every processor of the kind that it is compiled for can do: SSE2, NEON or whatever there is.
#include "headers.h"
#define VARIANT portable
#define LANES 4
#ifdef __aarch64__
#define ROWS 3  // of 32 registers, 24 for sums
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-schedule-insns")  // which loads weights so early that sums have to leave their registers
#endif
#else
#define ROWS 1
#endif
#include "variant.h"
