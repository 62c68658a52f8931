// The values PyTorch computed: reading a file of tests/golden, and how near is near enough.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "ops/cases/run_case.h"
#include "support/json_file.h"

namespace kiln {

constexpr double kForward = 1e-5, kBackward = 1e-4;

// The cases of an op's file. A file that is not there is a failure: a golden value nobody checks is none.
inline Json read_cases(const std::string& op) {
  const std::filesystem::path path = std::filesystem::path(KILN_TESTS_FOLDER) / "golden" / (op + ".json");
  std::ifstream file(path);
  if (!file) {
    ADD_FAILURE() << path << " is missing: run tools/make_golden.py --only " << op
                  << " where PyTorch is, and commit it";
    return Json::array();
  }
  Json page = json_of(file);
  EXPECT_EQ(page.at("op"), op);
  EXPECT_FALSE(page.at("cases").empty()) << path;
  return page.at("cases");
}

inline std::vector<double> numbers(const Json& tensor) {
  return tensor.at("data").get<std::vector<double>>();
}

inline Shape shape_of(const Json& tensor) {
  Shape s;
  for (const Json& n : tensor.at("shape")) s.push_back(n.get<int64_t>());
  return s;
}

// Within `bound` of the golden values' norm. The gradient of x / |x| at a single x is terms of order one that
// cancel to almost nothing; fp32 gives what is left to its spacing at one, and no better: the floor.
inline void expect_near(const std::vector<double>& got, const std::vector<double>& expected, double bound,
                        const std::string& what, double floor = 0x1p-23) {
  double norm = 0;
  for (double v : expected) norm += v * v;
  const double relative = relative_error(got, expected);
  const double distance = norm == 0 ? relative : relative * std::sqrt(norm);
  EXPECT_LE(distance, bound * std::sqrt(norm) + floor) << what << ": relative error " << relative;
}

}  // namespace kiln
