// KILN_HD marks the few functions that the host and the device share (number formats, random numbers).
#pragma once

#ifdef __CUDACC__
#define KILN_HD __host__ __device__
#else
#define KILN_HD
#endif
