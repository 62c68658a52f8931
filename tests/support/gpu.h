// For suites that need a GPU: KILN_NEEDS_GPU() as the first line of a test or of SetUp skips with the reason.
#pragma once

#include <gtest/gtest.h>

#include "device/gpu_info.h"

#define KILN_NEEDS_GPU()                                                       \
  do {                                                                         \
    std::string why;                                                           \
    if (kiln::list_gpus(&why).empty()) GTEST_SKIP() << "no GPU here: " << why; \
  } while (0)
