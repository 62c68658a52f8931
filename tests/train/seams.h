// What the seam tests compare, on any device: whatever way the step is run, it must end in the same bits.
// Shared by seams_test.cpp (CPU and meta) and cuda_seams_test.cpp.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autograd/op_observer.h"
#include "dist/comm/communicator.h"
#include "support/tiny_run.h"

namespace kiln {

RankOptions on(Device d, int threads = 1);

double relative_distance(const std::vector<std::byte>& a, const std::vector<std::byte>& b);  // of fp32 values

// The peaks of a real run, tag by tag, are those `meta` predicts for `target`.
void expect_meta_predicts(Device real, DeviceType target, bool graph);

// One process with two micro-steps does the arithmetic of two ranks with one each, in the same order.
using MakeStrategy = std::function<std::unique_ptr<Strategy>(RankContext&, Communicator&)>;
void expect_two_ranks_equal_one(Device device, bool exact, const MakeStrategy& make);
std::unique_ptr<Strategy> make_ddp(RankContext& ctx, Communicator& comm);
std::unique_ptr<Strategy> make_fsdp(RankContext& ctx, Communicator& comm);

// A NaN planted in an op's output is named and no weight changes.
void expect_nan_is_named(Device device, bool graph, const std::string& op, Pass pass,
                         const std::string& scope);

}  // namespace kiln
