#pragma once
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <new>

#if defined(__x86_64__) || defined(_M_X64)
#define ELMO_X86 1
#include <immintrin.h>
#ifdef __has_include
#if __has_include(<avx512bf16intrin.h>)
#define ELMO_BFLOAT16 1  // the compiler knows VDPBF16PS; the processor is asked at run time
#endif
#if __has_include(<avx512vnniintrin.h>)
#define ELMO_VNNI 1  // and VPDPBUSD
#endif
#endif
#endif

#ifdef __aarch64__
#include <arm_neon.h>
#endif

#include "kernels.h"
