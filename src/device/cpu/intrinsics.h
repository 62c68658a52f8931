// <immintrin.h>, without g++ 12's false alarms: its AVX-512 header starts "undefined" vectors from
// themselves, and every inlined use would be reported as an uninitialised read.
#pragma once

#ifndef __clang__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#ifndef __clang__
#pragma GCC diagnostic pop
#endif
