/* kiln's attention, forward and backward, on raw pointers and a CUDA stream: plain C, no framework.
 *
 *   o = softmax(scale * q k^T + mask) v     lse = log(sum(exp(scale * q k^T + mask)))     per head
 *
 * Link with -lkiln (`make cuda` leaves build-cuda/libkiln.so). docs/attention-library.md has a walk-through
 * and the table of what is supported; examples/attention.c is a whole program.
 *
 * Calls queue their work on the caller's stream and return; they neither wait, nor allocate on the device,
 * nor leave another GPU current. They can therefore be captured in a CUDA graph, after one call with the same
 * problem outside the capture has loaded its kernels. A context may be used from several threads; each call
 * is by itself. Backward on a Hopper GPU wants the whole GPU: calls on several streams run one after the
 * other.
 *
 * A call that fails has queued nothing, or the GPU itself has failed. It returns a status other than KILN_OK,
 * and kiln_last_error() then says in one line what was wrong. No exception leaves the library.
 */
#ifndef KILN_ATTENTION_H
#define KILN_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define KILN_API __attribute__((visibility("default")))
#else
#define KILN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Changes when a struct or the meaning of an argument does. */
#define KILN_ABI_VERSION 2

typedef enum kiln_status {
  KILN_OK = 0,
  KILN_BAD_ARGUMENT = 1,  /* the call is wrong: shapes, pointers, strides, an unknown name */
  KILN_NOT_AVAILABLE = 2, /* not here: no such GPU or driver, or no variant runs this problem on it */
  KILN_CUDA_FAILURE = 3,  /* CUDA refused, or an earlier kernel of the process failed */
  KILN_INTERNAL_ERROR = 4 /* host memory ran out, or a fault of kiln's */
} kiln_status;

/* None is 0, so that a field forgotten in a zeroed struct is noticed. */
typedef enum kiln_dtype { KILN_FP32 = 1, KILN_BF16 = 2, KILN_FP16 = 3 } kiln_dtype;

/* A zeroed struct with the sizes, `struct_size` and `dtype` set is a full, deterministic problem. */
typedef struct kiln_attention_problem {
  uint32_t struct_size; /* sizeof(kiln_attention_problem) */
  int32_t dtype;        /* a kiln_dtype, that of q, k, v, o and the gradients; lse is always fp32 */
  int64_t batch;
  int64_t queries; /* a sequence's; the longest one's where lengths vary */
  int64_t keys;    /* likewise */
  int64_t heads;
  int64_t kv_heads; /* divides heads: query head h reads key head h / (heads / kv_heads) */
  int64_t head_dim; /* 1 .. 256 */
  float scale;      /* 0: 1 / sqrt(head_dim) */
  /* Query i sees keys 0 .. i + keys - queries: aligned at the bottom right. One that sees none gets o = 0 and
   * lse = -infinity. */
  int32_t causal;
  int32_t allow_atomic; /* 0: the same bits every time; 1: sums of no fixed order where that is faster */
  int32_t reserved;     /* 0 */
  const char* variant;  /* NULL: the best one here. A name (`kiln ops attention`) runs that one or fails. */

  /* Lengths that vary: sequence b has rows cu[b] .. cu[b + 1] - 1 of tensors without a batch axis, [rows,
   * heads, head_dim], so batch strides are not read. cu has batch + 1 entries, the first 0, none smaller than
   * the one before, and no two further apart than `queries` or `keys`, the longest. Both NULL: every sequence
   * has `queries` and `keys`.
   *
   * On the device, which alone reads them, when the kernels run: one launch takes the whole batch. query_rows
   * and key_rows are the tensors' rows; those behind the last sequence do not matter and are not written.
   * Nobody notices offsets that break the rules: results are then wrong, or a kernel does not end, but
   * nothing outside the tensors is touched. */
  const int32_t* cu_queries;
  const int32_t* cu_keys;
  /* In host memory, in place of those: checked, and one sequence is started after the other. Every variant
   * takes them. Not read where there are offsets on the device; the rows are those of the last offset. */
  const int32_t* host_cu_queries;
  const int32_t* host_cu_keys;
  int64_t query_rows;
  int64_t key_rows;
} kiln_attention_problem;

/* A [batch, rows, heads, head_dim] tensor with its strides in elements; head_dim is dense. `data` is a
 * multiple of 16 bytes (fast kernels also want strides that are); rows are at least heads * head_dim apart,
 * which allows packed QKV; heads lie head_dim apart, other head strides are refused. A tensor of no elements
 * may be NULL. */
typedef struct kiln_attention_view {
  void* data; /* inputs are only read */
  int64_t batch_stride;
  int64_t row_stride;
  int64_t head_stride;
} kiln_attention_view;

typedef struct kiln_attention_context kiln_attention_context;

/* In place of a GPU's index: computes on the host's memory and threads, and is done when the call returns. */
#define KILN_CPU (-1)

KILN_API int kiln_abi_version(void);
KILN_API const char* kiln_version(void); /* of the library: "0.1.0 (3da2c08)" */
/* sizeof the two structs as the library was compiled, for bindings. */
KILN_API size_t kiln_attention_problem_size(void);
KILN_API size_t kiln_attention_view_size(void);

/* What was wrong with this thread's last call that failed; "" before. Valid until the next one fails. */
KILN_API const char* kiln_last_error(void);

/* What calls need on one GPU, counted as CUDA counts them; or KILN_CPU. Holds no device memory of its own. */
KILN_API kiln_status kiln_attention_create(int device, kiln_attention_context** context);
/* No call may be running. Work that was queued runs on. NULL is allowed. */
KILN_API void kiln_attention_destroy(kiln_attention_context* context);

/* The name of the variant that forward takes for this problem, where the rows of all tensors begin at
 * multiples of 16 bytes; never freed. Backward may take another one, which reads the same lse. */
KILN_API kiln_status kiln_attention_variant(kiln_attention_context* context,
                                            const kiln_attention_problem* problem, const char** name);

/* Bytes of scratch of the two passes. The caller gives it, a multiple of 256 bytes as an address; its content
 * may be anything before and after. Either pointer may be NULL. */
KILN_API kiln_status kiln_attention_workspace(kiln_attention_context* context,
                                              const kiln_attention_problem* problem, size_t* forward_bytes,
                                              size_t* backward_bytes);

/* Writes o and lse, [batch, heads, queries] fp32 without gaps ([heads, rows of q] where lengths vary).
 * `stream` is a cudaStream_t; NULL means CUDA's default stream. workspace may be NULL where none is needed.
 */
KILN_API kiln_status kiln_attention_forward(kiln_attention_context* context,
                                            const kiln_attention_problem* problem,
                                            const kiln_attention_view* q, const kiln_attention_view* k,
                                            const kiln_attention_view* v, const kiln_attention_view* o,
                                            float* lse, void* workspace, size_t workspace_bytes,
                                            void* stream);

/* From the same problem, inputs and results of forward, and the gradient of o. Gradients are written, not
 * added; dq, dk and dv may each be NULL where nobody wants it. */
KILN_API kiln_status kiln_attention_backward(kiln_attention_context* context,
                                             const kiln_attention_problem* problem,
                                             const kiln_attention_view* q, const kiln_attention_view* k,
                                             const kiln_attention_view* v, const kiln_attention_view* o,
                                             const float* lse, const kiln_attention_view* dout,
                                             const kiln_attention_view* dq, const kiln_attention_view* dk,
                                             const kiln_attention_view* dv, void* workspace,
                                             size_t workspace_bytes, void* stream);

#ifdef __cplusplus
}
#endif
#endif
