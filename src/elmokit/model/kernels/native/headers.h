#pragma once
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <new>

#if defined(__x86_64__) || defined(_M_X64)
#define ELMO_X86 1
#include <immintrin.h>
#endif

#include "kernels.h"
