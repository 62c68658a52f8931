// fused: forward copies rows sixteen bytes at a time. Backward first lists the positions of every token, in
// order, then gives each vocabulary row threads that sum its positions in fp32 and write the row, zero where
// nobody used it. Where a token's list is in memory depends on a race of integer atomics; what it holds,
// and the order of every sum, does not. A token used more than 128 times is summed in runs of 128 by as many
// blocks, and the runs' sums are added in order: no row waits for one block that walks thousands.
// Memory bound: as in cuda_naive.cu; the lists add 24 bytes a token and 12 a vocabulary row.
#include "device/cuda/cuda_check.h"
#include "ops/cuda_device/rank.h"
#include "ops/cuda_device/rows.cuh"
#include "ops/cuda_device/vector.cuh"
#include "ops/embedding/cuda_sort.h"

namespace kiln {
namespace {

template <class T>
__global__ void embedding_fused_forward_kernel(EmbeddingProblem p, const int32_t* tokens, RowView<T> weight,
                                               RowView<T> y) {
  constexpr int N = Pack<T>::kSize;
  const int64_t t = blockIdx.x, c = first_column() * N;
  if (c >= p.cols) return;
  const int32_t token = tokens[t];
  if (token >= 0 && token < p.vocab) {
    store_pack(y[t] + c, load_pack(weight[token] + c));
    return;
  }
  float none[N];
#pragma unroll
  for (int i = 0; i < N; ++i) none[i] = token == kTokenElsewhere ? 0.0f : NAN;
  store_pack(y[t] + c, Pack<T>::of(none));
}

struct Lists {
  const int32_t* tokens;
  int32_t* counts;      // [vocab]
  int32_t* cursors;     // entries of `placed` and runs that are taken
  int32_t* starts;      // [vocab] where a token's list begins
  int32_t* first_runs;  // [vocab] of tokens with several runs
  int32_t* slots;       // [tokens] a place in its token's list, as the race had it
  int32_t* placed;      // [tokens] the lists as the race had them
  int32_t* ordered;     // [tokens] the lists in order of position
  int32_t *run_begin, *run_length;
};

__device__ int32_t runs_of(int32_t count) {
  return static_cast<int32_t>((count + kEmbeddingRun - 1) / kEmbeddingRun);
}

__device__ bool known(const EmbeddingProblem& p, int32_t token) { return token >= 0 && token < p.vocab; }

__global__ void count_kernel(EmbeddingProblem p, Lists l) {
  const int64_t t = flat_index();
  if (t < p.tokens && known(p, l.tokens[t])) l.slots[t] = atomicAdd(l.counts + l.tokens[t], 1);
}

// Allocates list entries, a warp's worth at a time.
__global__ void start_kernel(EmbeddingProblem p, Lists l) {
  const int64_t v = flat_index();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int32_t count = v < p.vocab ? l.counts[v] : 0;
  int32_t up_to = count;  // this lane's count and those before it
  for (int distance = 1; distance < 32; distance *= 2) {
    const int32_t before = __shfl_up_sync(0xffffffffu, up_to, distance);
    if (lane >= distance) up_to += before;
  }
  int32_t begin = 0;
  if (lane == 31 && up_to > 0) begin = atomicAdd(l.cursors, up_to);
  begin = __shfl_sync(0xffffffffu, begin, 31);
  if (count == 0) return;
  l.starts[v] = begin + up_to - count;
  if (count > kEmbeddingRun) l.first_runs[v] = atomicAdd(l.cursors + 1, runs_of(count));
}

__global__ void place_kernel(EmbeddingProblem p, Lists l) {
  const int64_t t = flat_index();
  if (t < p.tokens && known(p, l.tokens[t]))
    l.placed[l.starts[l.tokens[t]] + l.slots[t]] = static_cast<int32_t>(t);
}

// A position's place in its list is the number of positions there that come before it. That is quadratic in
// the list: 65,536 uses of one token are 4 G comparisons, text's commonest token some 10 M.
__global__ void order_kernel(EmbeddingProblem p, Lists l) {
  const int64_t t = flat_index();
  if (t >= p.tokens || !known(p, l.tokens[t])) return;
  const int32_t token = l.tokens[t], count = l.counts[token], start = l.starts[token];
  const int32_t* list = l.placed + start;
  int32_t before = 0;
#pragma unroll 8
  for (int32_t i = 0; i < count; ++i) before += list[i] < t;
  l.ordered[start + before] = static_cast<int32_t>(t);
  if (count <= kEmbeddingRun || before % kEmbeddingRun != 0) return;
  const int64_t run = l.first_runs[token] + before / kEmbeddingRun, rest = count - before;
  l.run_begin[run] = start + before;
  l.run_length[run] = static_cast<int32_t>(rest < kEmbeddingRun ? rest : kEmbeddingRun);
}

// sum += the packs at column c of rows order[0] .. order[count - 1]; eight reads are in flight at a time.
template <class T>
__device__ void add_rows(float (&sum)[Pack<T>::kSize], const RowView<T>& dy, const int32_t* order,
                         int32_t count, int64_t c) {
#pragma unroll 8
  for (int32_t i = 0; i < count; ++i) {
    const Pack<T> row = load_pack(dy[order[i]] + c);
#pragma unroll
    for (int k = 0; k < Pack<T>::kSize; ++k) sum[k] += row[k];
  }
}

// N floats at `at`, four at a time: N is 4 or 8.
template <int N>
__device__ void store_floats(float* at, const float (&v)[N]) {
#pragma unroll
  for (int k = 0; k < N; k += 4) {
    const float four[4] = {v[k], v[k + 1], v[k + 2], v[k + 3]};
    store_pack(at + k, Pack<float>::of(four));
  }
}

template <class T>
__global__ void run_sums_kernel(EmbeddingProblem p, Lists l, RowView<T> dy, float* sums) {
  constexpr int N = Pack<T>::kSize;
  const int64_t run = blockIdx.x, c = first_column() * N;
  if (run >= l.cursors[1] || c >= p.cols) return;
  float sum[N] = {};
  add_rows(sum, dy, l.ordered + l.run_begin[run], l.run_length[run], c);
  store_floats(sums + run * p.cols + c, sum);
}

template <class T, class G>
__global__ void embedding_fused_backward_kernel(EmbeddingProblem p, Lists l, RowView<T> dy, const float* sums,
                                                RowView<G> dweight, bool accumulate) {
  constexpr int N = Pack<T>::kSize;
  const int64_t v = blockIdx.x, c = first_column() * N;
  if (c >= p.cols) return;
  const int32_t count = l.counts[v];
  if (count == 0 && accumulate) return;
  float sum[N] = {};
  if (count > kEmbeddingRun) {
    const float* run = sums + int64_t{l.first_runs[v]} * p.cols + c;
    const int32_t runs = runs_of(count);
#pragma unroll 4
    for (int32_t i = 0; i < runs; ++i, run += p.cols) {
#pragma unroll
      for (int k = 0; k < N; k += 4) {
        const Pack<float> part = load_pack(run + k);
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[k + j] += part[j];
      }
    }
  } else if (count > 0) {
    add_rows(sum, dy, l.ordered + l.starts[v], count, c);
  }
  G* out = dweight[v] + c;
  if constexpr (sizeof(G) == sizeof(T)) {
    put_pack(out, sum, accumulate);
  } else {
    if (accumulate) {
#pragma unroll
      for (int k = 0; k < N; k += 4) {
        const Pack<float> before = load_pack(out + k);
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[k + j] += before[j];
      }
    }
    store_floats(out, sum);
  }
}

Lists lists_in(std::byte* scratch, const EmbeddingScratch& at, const int32_t* tokens) {
  const auto ints = [&](std::size_t begin) { return reinterpret_cast<int32_t*>(scratch + begin); };
  return {tokens,         ints(at.counts), ints(at.cursors), ints(at.starts),    ints(at.first_runs),
          ints(at.slots), ints(at.placed), ints(at.ordered), ints(at.run_begin), ints(at.run_length)};
}

// One thread per pack of a row.
int row_threads(const EmbeddingProblem& p) {
  const int64_t packs = p.cols * static_cast<int64_t>(size_of(p.dtype)) / 16;
  return static_cast<int>(std::clamp<int64_t>((packs + 31) / 32 * 32, 32, kThreads));
}

Grid row_grid(int64_t rows, const EmbeddingProblem& p) {
  return {rows, blocks_for(p.cols * static_cast<int64_t>(size_of(p.dtype)) / 16, row_threads(p))};
}

}  // namespace

void embedding_cuda_fused_forward(RankContext& ctx, const EmbeddingForward& f) {
  with_narrow_gpu_float(f.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(embedding_fused_forward_kernel<T>, row_grid(f.p.tokens, f.p), row_threads(f.p), 0,
           cuda_stream(ctx), f.p, f.tokens.data<int32_t>(), row_view<T>(f.weight), row_view<T>(f.y));
  });
}

void embedding_cuda_fused_backward(RankContext& ctx, const EmbeddingBackward& b) {
  const Stream stream = cuda_stream(ctx);
  const EmbeddingScratch at(b.p);
  const Lists lists = lists_in(b.workspace.raw(), at, b.tokens.data<int32_t>());
  KILN_CUDA_CHECK(cudaMemsetAsync(lists.counts, 0, static_cast<std::size_t>(b.p.vocab + 2) * sizeof(int32_t),
                                  static_cast<cudaStream_t>(stream.handle)));
  launch(count_kernel, flat_grid(b.p.tokens), kThreads, 0, stream, b.p, lists);
  launch(start_kernel, flat_grid(b.p.vocab), kThreads, 0, stream, b.p, lists);
  launch(place_kernel, flat_grid(b.p.tokens), kThreads, 0, stream, b.p, lists);
  launch(order_kernel, flat_grid(b.p.tokens), kThreads, 0, stream, b.p, lists);
  with_narrow_gpu_float(b.p.dtype, [&](auto zero) {
    using T = decltype(zero);
    float* sums = reinterpret_cast<float*>(b.workspace.raw());
    launch(run_sums_kernel<T>, row_grid(at.runs, b.p), row_threads(b.p), 0, stream, b.p, lists,
           row_view<T>(b.dy), sums);
    with_grad_dtype<T>(b.dweight.tensor.dtype(), [&](auto grad) {
      using G = decltype(grad);
      launch(embedding_fused_backward_kernel<T, G>, row_grid(b.p.vocab, b.p), row_threads(b.p), 0, stream,
             b.p, lists, row_view<T>(b.dy), sums, row_view<G>(b.dweight.tensor), b.dweight.accumulate);
    });
  });
}

}  // namespace kiln
