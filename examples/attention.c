/* Attention on a GPU from plain C: forward and backward from one packed QKV buffer, checked against loops on
 * the host.
 *
 *   make cuda && build-cuda/example_attention          on the first GPU
 *   build-cuda/example_attention --cpu                 the same calls on the host
 *
 * Exit status: 0 the results agree, 1 they do not or a call failed, 3 there is no GPU.
 */
#include <kiln/attention.h>

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two sequences; four query heads share two key/value heads. */
enum { B = 2, T = 70, H = 4, HKV = 2, D = 64, ROW = (H + 2 * HKV) * D };
#define SCALE 0.125f

static int device = 0; /* or KILN_CPU */

static void check(kiln_status status, const char* call) {
  if (status == KILN_OK) return;
  fprintf(stderr, "%s: %s\n", call, kiln_last_error());
  exit(status == KILN_NOT_AVAILABLE ? 3 : 1);
}

static void check_cuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(error));
  exit(1);
}

/* bf16 is the upper half of an fp32; rounded to nearest, ties to even. */
static uint16_t to_bf16(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

static float from_bf16(uint16_t h) {
  uint32_t u = (uint32_t)h << 16;
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

static void* allocate(size_t bytes) {
  void* p = NULL;
  bytes = (bytes + 256) / 256 * 256; /* never 0; aligned_alloc wants a multiple */
  if (device == KILN_CPU) {
    p = aligned_alloc(256, bytes);
  } else {
    check_cuda(cudaMalloc(&p, bytes), "cudaMalloc");
  }
  if (p == NULL) exit(1);
  return p;
}

static void copy(void* to, const void* from, size_t bytes) {
  if (device == KILN_CPU) {
    memcpy(to, from, bytes);
  } else {
    check_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "cudaMemcpy");
  }
}

static void release(void* p) {
  if (device == KILN_CPU) {
    free(p);
  } else {
    check_cuda(cudaFree(p), "cudaFree");
  }
}

static float qkv[B][T][ROW], dout[B][T][H * D];        /* what goes in */
static float o[B][T][H * D], lse[B][H][T];             /* by the loops below */
static float dqkv[B][T][ROW];                          /* likewise */
static uint16_t got[B * T * ROW], packed[B * T * ROW]; /* as bf16 */

static void attend(int b, int h, int i) {
  const float *q = &qkv[b][i][h * D], *k = &qkv[b][0][(H + h / (H / HKV)) * D], *v = k + HKV * D;
  float *dq = &dqkv[b][i][h * D], *dk = &dqkv[b][0][(H + h / (H / HKV)) * D], *dv = dk + HKV * D;
  const float* g = &dout[b][i][h * D];
  float p[T], dp[T], sum = 0, inner = 0;
  for (int j = 0; j <= i; ++j) { /* causal */
    float score = 0;
    for (int c = 0; c < D; ++c) score += q[c] * k[j * ROW + c];
    sum += p[j] = expf(SCALE * score); /* the scores are small: no maximum is needed */
  }
  lse[b][h][i] = logf(sum);
  for (int j = 0; j <= i; ++j) {
    p[j] /= sum;
    dp[j] = 0;
    for (int c = 0; c < D; ++c) {
      o[b][i][h * D + c] += p[j] * v[j * ROW + c];
      dv[j * ROW + c] += p[j] * g[c];
      dp[j] += g[c] * v[j * ROW + c];
    }
    inner += p[j] * dp[j];
  }
  for (int j = 0; j <= i; ++j) {
    const float ds = SCALE * p[j] * (dp[j] - inner);
    for (int c = 0; c < D; ++c) {
      dq[c] += ds * k[j * ROW + c];
      dk[j * ROW + c] += ds * q[c];
    }
  }
}

/* The largest distance between values from the library and the loops'. */
static float distance(const uint16_t* theirs, const float* ours, size_t count) {
  float worst = 0;
  for (size_t i = 0; i < count; ++i) {
    const float d = fabsf(from_bf16(theirs[i]) - ours[i]);
    if (!(d <= worst)) worst = d; /* a NaN is the largest of all */
  }
  return worst;
}

static kiln_attention_view view_of(void* data, int first_column, int row_stride) {
  kiln_attention_view v;
  v.data = (uint16_t*)data + first_column;
  v.batch_stride = (int64_t)T * row_stride;
  v.row_stride = row_stride;
  v.head_stride = D;
  return v;
}

static void upload(void* to, float* values, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    packed[i] = to_bf16(values[i]);
    values[i] = from_bf16(packed[i]); /* the loops start from what the library sees */
  }
  copy(to, packed, count * sizeof *packed);
}

static kiln_attention_problem causal_problem(void) {
  kiln_attention_problem problem;
  memset(&problem, 0, sizeof problem);
  problem.struct_size = sizeof problem;
  problem.dtype = KILN_BF16;
  problem.batch = B;
  problem.queries = problem.keys = T;
  problem.heads = H;
  problem.kv_heads = HKV;
  problem.head_dim = D;
  problem.scale = SCALE;
  problem.causal = 1;
  return problem;
}

static struct { /* on the device */
  void *qkv, *dqkv, *o, *dout, *lse, *scratch;
} on_device;

static void fill(size_t scratch_bytes) {
  float* values = &qkv[0][0][0];
  for (int i = 0; i < B * T * ROW; ++i) values[i] = sinf((float)(i % 7919) * 1.7f);
  for (int i = 0; i < B * T * H * D; ++i) (&dout[0][0][0])[i] = cosf((float)(i % 6007) * 2.3f);
  on_device.qkv = allocate(sizeof got);
  on_device.dqkv = allocate(sizeof got);
  on_device.o = allocate(B * T * H * D * 2);
  on_device.dout = allocate(B * T * H * D * 2);
  on_device.lse = allocate(sizeof lse);
  on_device.scratch = allocate(scratch_bytes);
  upload(on_device.qkv, values, B * T * ROW);
  upload(on_device.dout, &dout[0][0][0], B * T * H * D);
}

/* q, k and v are columns of the packed rows, and so are their gradients: no copies. */
static void forward_and_backward(kiln_attention_context* context, const kiln_attention_problem* problem,
                                 size_t forward_bytes, size_t backward_bytes) {
  void *d_qkv = on_device.qkv, *d_dqkv = on_device.dqkv;
  const kiln_attention_view q = view_of(d_qkv, 0, ROW), k = view_of(d_qkv, H * D, ROW),
                            v = view_of(d_qkv, (H + HKV) * D, ROW), dq = view_of(d_dqkv, 0, ROW),
                            dk = view_of(d_dqkv, H * D, ROW), dv = view_of(d_dqkv, (H + HKV) * D, ROW),
                            out = view_of(on_device.o, 0, H * D), grad = view_of(on_device.dout, 0, H * D);
  cudaStream_t stream = NULL;
  if (device != KILN_CPU) check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
  check(kiln_attention_forward(context, problem, &q, &k, &v, &out, on_device.lse, on_device.scratch,
                               forward_bytes, stream),
        "kiln_attention_forward");
  check(kiln_attention_backward(context, problem, &q, &k, &v, &out, on_device.lse, &grad, &dq, &dk, &dv,
                                on_device.scratch, backward_bytes, stream),
        "kiln_attention_backward");
  if (device == KILN_CPU) return;
  check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

/* Prints the largest errors; whether they are small. */
static int agrees(const char* variant) {
  for (int b = 0; b < B; ++b) {
    for (int h = 0; h < H; ++h) {
      for (int i = 0; i < T; ++i) attend(b, h, i);
    }
  }
  static float got_lse[B * H * T];
  float worst_lse = 0;
  copy(got_lse, on_device.lse, sizeof got_lse);
  for (int i = 0; i < B * H * T; ++i) {
    const float d = fabsf(got_lse[i] - (&lse[0][0][0])[i]);
    if (!(d <= worst_lse)) worst_lse = d;
  }
  copy(got, on_device.o, B * T * H * D * 2);
  const float worst_o = distance(got, &o[0][0][0], B * T * H * D);
  copy(got, on_device.dqkv, sizeof got);
  const float worst_grad = distance(got, &dqkv[0][0][0], B * T * ROW);
  printf("kiln %s, %s on %s: largest error o %.2g, lse %.2g, gradients %.2g\n", kiln_version(), variant,
         device == KILN_CPU ? "the CPU" : "GPU 0", worst_o, worst_lse, worst_grad);
  return worst_o < 0.01f && worst_lse < 0.001f && worst_grad < 0.05f;
}

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "--cpu") == 0) device = KILN_CPU;

  kiln_attention_context* context;
  check(kiln_attention_create(device, &context), "kiln_attention_create");
  if (device != KILN_CPU) check_cuda(cudaSetDevice(device), "cudaSetDevice");

  const kiln_attention_problem problem = causal_problem();
  const char* variant;
  size_t forward_bytes, backward_bytes;
  check(kiln_attention_variant(context, &problem, &variant), "kiln_attention_variant");
  check(kiln_attention_workspace(context, &problem, &forward_bytes, &backward_bytes),
        "kiln_attention_workspace");

  fill(forward_bytes > backward_bytes ? forward_bytes : backward_bytes);
  forward_and_backward(context, &problem, forward_bytes, backward_bytes);
  const int good = agrees(variant);
  if (!good) fprintf(stderr, "these differ from the loops' values\n");

  void* const memory[] = {on_device.qkv,  on_device.dqkv, on_device.o,
                          on_device.dout, on_device.lse,  on_device.scratch};
  for (size_t i = 0; i < sizeof memory / sizeof *memory; ++i) release(memory[i]);
  kiln_attention_destroy(context);
  return good ? 0 : 1;
}
