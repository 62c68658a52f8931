#include "studies/calibrate/design.h"

namespace kiln {
namespace {

// Extents of one shape are unlike each other, and what is large in one is small in the next: among n shapes
// each extent takes n places, and no two of them grow together. Of the CPU's, one is wide and three blocks
// deep, so that its weights leave the cache between two uses as a large model's do: without it small and
// medium at 128 tokens were predicted 8 to 10 % too fast. Another is long: without it 4,096 tokens were, by
// 10 %.
// clang-format off
constexpr CalibrationShape kCpu[] = {
    // width    ff heads layers vocab  batch context
    {     32,   96,   1,   3,     320,    2,     48},
    {     96,  256,   3,   2,     384,    1,     96},
    {     48,  160,   3,   2,    1280,    4,     72},
    {    160,  448,   5,   2,     640,    2,    160},
    {     96,  320,   3,   1,    1536,    8,     96},
    {    192,  512,   3,   1,     448,    1,    384},
    {   1024, 2816,  16,   3,    2048,    1,     96},
    {     64,  224,   2,   2,     512,    6,    320},
    {    320,  896,   5,   1,    2560,    1,     64},
    {    224,  640,   7,   1,    3072,    4,    128},
    {    128,  512,   2,   1,     896,    2,    768},
    {    288,  832,   9,   1,    1792,    3,    256},
    {    512, 1280,   8,   1,     768,    2,    192},
    {    384, 1152,   6,   1,    5120,    1,    384},
    {    192,  704,   6,   1,    2304,   12,    192},
    {    640, 2304,  10,   1,    3584,    1,    160},
    {    256,  640,   4,   1,    1024,    2,   1152},
    {    896, 2560,  14,   1,    6144,    1,    192},
    {    128,  512,   2,   1,     768,    1,   3328},
    {    704, 2816,  11,   1,   12288,    2,    128},
    {    320, 1024,   5,   1,    1536,    6,    448},
    {   1024, 3328,  16,   1,    8192,    2,    288},
};
constexpr CalibrationShape kGpu[] = {
    // width     ff heads layers  vocab  batch context
    {    256,   640,   4,   2,    2560,    2,    192},
    {    512,  1792,   8,   2,    6144,    4,    384},
    {    640,  1536,  10,   2,   12288,    6,    640},
    {    896,  3328,  14,   2,    8192,    3,    320},
    {   1152,  4864,  18,   2,   14336,    4,    448},
    {    384,  2048,   6,   2,   20480,    8,   1280},
    {   1408,  5632,  22,   2,    9216,    5,    768},
    {   1536,  3840,  24,   2,    4096,    2,   2560},
    {   1792,  7168,  28,   2,   11264,    4,    384},
    {    768,  2304,  12,   2,    9216,    2,   5120},
    {   2048,  8704,  32,   2,    7168,    4,    576},
    {   1024,  2816,   8,   2,   16384,    4,   3072},
    {   2304,  6144,  18,   2,   13312,    3,    896},
    {   1280,  6144,  20,   2,    5120,    1,   7168},
    {   2816, 11264,  22,   2,    8192,    4,    448},
    {   3072,  8192,  48,   2,   10240,    2,   1792},
    {   2304,  9216,  36,   2,   24576,    4,   1536},
    {   3584,  9728,  28,   2,   12288,    4,    640},
    {   1920,  5120,  15,   2,   32768,    2,   6144},
    {   3840, 14336,  30,   2,   16384,    1,   3584},
    {   4352, 11776,  34,   2,   10240,    4,    768},
    {   3328,  8960,  26,   2,   65536,    1,   9216},
};
// clang-format on

}  // namespace

ModelConfig config_of(const CalibrationShape& s) {
  ModelConfig c;
  c.vocab = s.vocab;
  c.d_model = s.d_model;
  c.d_ff = s.d_ff;
  c.layers = s.layers;
  c.heads = c.kv_heads = s.heads;
  return c;
}

std::span<const CalibrationShape> calibration_shapes(DeviceType device) {
  if (device == DeviceType::cuda) return kGpu;
  return kCpu;
}

}  // namespace kiln
