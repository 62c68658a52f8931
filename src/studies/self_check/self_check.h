// Are the ops of this build right on this machine? Every variant that runs on a device, on every case its
// op's tests have, against the op's definition; the error rule is that of the tests
// (tests/ops/op_cases_test.cpp): at most twice as far from fp64 as the definition in the same format.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/stop.h"
#include "device/device.h"
#include "report/tables/study_page.h"

namespace kiln {

struct SelfCheckRow {
  std::string op, variant, device;
  int runs = 0;                // cases, each in every format the variant takes
  double worst = 0;            // error over what is allowed, of the run that comes closest
  std::string worst_run = {};  // "uneven bf16"
  std::string reason = {};     // why it failed; empty: it did not
  bool passed() const { return runs > 0 && reason.empty(); }
};

struct SelfCheckRequest {
  Device device;
  std::vector<std::string> ops;  // empty: all
  StopAsked stop = nullptr;
};

// In the order of `kiln ops`. Variants that cannot run on the device, and those that none of the cases is
// for, have no row.
std::vector<SelfCheckRow> self_check(const SelfCheckRequest& request,
                                     const std::function<void(const std::string&)>& progress);

StudyPage self_check_page(const std::vector<SelfCheckRow>& rows, const Device& device);

}  // namespace kiln
