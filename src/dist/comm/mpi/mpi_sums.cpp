// Sums over ranks. `deterministic` sends every piece to the one rank that sums it, and the sum back: as many
// bytes as a ring, 2 (N-1)/N of the tensor each way, but each element is added by one rank in a fixed order.
// 100 MB of fp32 between two processes on two cores with much other work, alternately: MPI_Allreduce 154 ms
// (p20-p80 146-193), this 144 (128-166), MPI_Iallreduce, which `library` polls, 315 (283-330):
// bench/peers/mpi_allreduce.cpp.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/on_exit.h"
#include "dist/comm/mpi/mpi_group.h"
#include "dist/comm/mpi/mpi_tags.h"

namespace kiln {
namespace {

constexpr int64_t kBlock = 512;  // elements at a time: a few of them stay in the first cache

// Adds up the ranks from `first` to `last`, both included, pairwise as reduce_ranks.h says, into `sum`.
template <class T>
void sum_block(Accum<T>* sum, const std::vector<const std::byte*>& src, std::size_t first, std::size_t last,
               int64_t at, int64_t n) {
  const T* const mine = reinterpret_cast<const T*>(src[first]) + at;
  if (first == last) {
    for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<Accum<T>>(mine[i]);
  } else if (first + 1 == last) {
    const T* const other = reinterpret_cast<const T*>(src[last]) + at;
    for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<Accum<T>>(mine[i]) + static_cast<Accum<T>>(other[i]);
  } else {
    const std::size_t half = std::bit_floor(last - first);  // the largest power of two below their number
    std::array<Accum<T>, kBlock> upper;
    sum_block<T>(sum, src, first, first + half - 1, at, n);
    sum_block<T>(upper.data(), src, first + half, last, at, n);
    for (int64_t i = 0; i < n; ++i) sum[i] += upper[static_cast<std::size_t>(i)];
  }
}

template <class T>
void sum_as(T* dst, const std::vector<const std::byte*>& src, int64_t count) {
  std::array<Accum<T>, kBlock> sum;
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t n = std::min(kBlock, count - first);
    sum_block<T>(sum.data(), src, 0, src.size() - 1, first, n);
    for (int64_t i = 0; i < n; ++i) dst[first + i] = static_cast<T>(sum[static_cast<std::size_t>(i)]);
  }
}

// Of MPI's own reductions: one addition, rounded to the type it came in.
template <class T>
void add_pair(void* in, void* inout, int* count, MPI_Datatype*) {
  const T* const a = static_cast<const T*>(in);
  T* const b = static_cast<T*>(inout);
  for (int i = 0; i < *count; ++i) b[i] = static_cast<T>(static_cast<float>(a[i]) + static_cast<float>(b[i]));
}

}  // namespace

void sum_in_order(std::byte* dst, const std::vector<const std::byte*>& src, int64_t count, DType dtype) {
  with_float(dtype, [&](auto zero) { sum_as(reinterpret_cast<decltype(zero)*>(dst), src, count); });
}

// The parts of one sum on their way: rank r's part is [r * stride, r * stride + length(r)). Pieces of a part
// arrive one by one, so that while one is summed others are in flight.
class RankedSum {
 public:
  RankedSum(MpiGroup& group, int64_t stride, int64_t total, DType dtype)
      : g_(group),
        stride_(stride),
        total_(total),
        dtype_(dtype),
        size_(static_cast<int64_t>(size_of(dtype))),
        piece_(std::max<int64_t>(1, kPieceBytes / size_)) {
    g_.pieces_.resize(static_cast<std::size_t>(kTurns * g_.world_ * std::min(piece_, stride_) * size_));
  }

  // `back`: sums go back to their place in `in`, which is then written too: every rank's, or only that of
  // `taker`.
  void run(const std::byte* in, std::byte* mine, std::byte* back, const std::string& title,
           std::optional<int> taker = {}) {
    const int64_t pieces = (stride_ + piece_ - 1) / piece_;
    std::vector<std::unique_ptr<MpiWaits>> coming(kTurns), going(kTurns), returning(kTurns);
    auto fresh = [&](std::unique_ptr<MpiWaits>& w) {
      w = std::make_unique<MpiWaits>(g_.alarm_, g_.options_.comm.timeout);
      return w.get();
    };
    auto finish = [&](std::unique_ptr<MpiWaits>& w) {
      if (w) g_.finish(*w, title);
    };
    for (int64_t k = 0; k < pieces + kTurns - 1; ++k) {
      if (k < pieces) start(k, in, *fresh(coming[turn(k)]), *fresh(going[turn(k)]));
      const int64_t now = k - (kTurns - 1);
      if (now < 0) continue;
      finish(coming[turn(now)]);
      add(now, in, mine);
      finish(going[turn(now)]);  // what was sent may be written now
      if (back == nullptr) continue;
      finish(returning[turn(now)]);
      give_back(now, mine, back, taker, *fresh(returning[turn(now)]));
    }
    for (auto& w : returning) finish(w);
  }

 private:
  static constexpr int64_t kPieceBytes = 1 << 20, kTurns = 3;
  static std::size_t turn(int64_t piece) { return static_cast<std::size_t>(piece % kTurns); }

  int64_t length(int rank, int64_t piece) const {
    const int64_t part = std::clamp<int64_t>(total_ - rank * stride_, 0, stride_);
    return std::clamp<int64_t>(part - piece * piece_, 0, piece_);
  }
  int64_t place(int rank, int64_t piece) const { return (rank * stride_ + piece * piece_) * size_; }
  std::byte* slot(int rank, int64_t piece) const {
    return g_.pieces_.data() +
           (static_cast<int64_t>(turn(piece)) * g_.world_ + rank) * std::min(piece_, stride_) * size_;
  }
  std::size_t bytes(int rank, int64_t piece) const {
    return static_cast<std::size_t>(length(rank, piece) * size_);
  }

  void start(int64_t k, const std::byte* in, MpiWaits& coming, MpiWaits& going) {
    for (int i = 1; i < g_.world_; ++i) {
      const int to = (g_.rank_ + i) % g_.world_, from = (g_.rank_ - i + g_.world_) % g_.world_;
      g_.receive(coming, slot(from, k), bytes(g_.rank_, k), from, kPieceTag);
      g_.send(going, in + place(to, k), bytes(to, k), to, kPieceTag);
    }
  }
  void add(int64_t k, const std::byte* in, std::byte* mine) {
    if (length(g_.rank_, k) == 0) return;
    std::vector<const std::byte*> src(static_cast<std::size_t>(g_.world_));
    for (int r = 0; r < g_.world_; ++r)
      src[static_cast<std::size_t>(r)] = r == g_.rank_ ? in + place(r, k) : slot(r, k);
    sum_in_order(mine + k * piece_ * size_, src, length(g_.rank_, k), dtype_);
  }
  void give_back(int64_t k, const std::byte* mine, std::byte* back, std::optional<int> taker, MpiWaits& w) {
    for (int i = 1; i < g_.world_; ++i) {
      const int to = (g_.rank_ + i) % g_.world_, from = (g_.rank_ - i + g_.world_) % g_.world_;
      if (taker.value_or(g_.rank_) == g_.rank_)
        g_.receive(w, back + place(from, k), bytes(from, k), from, kSumTag);
      if (taker.value_or(to) == to) g_.send(w, mine + k * piece_ * size_, bytes(g_.rank_, k), to, kSumTag);
    }
  }

  MpiGroup& g_;
  int64_t stride_, total_;
  DType dtype_;
  int64_t size_, piece_;
};

void MpiGroup::all_reduce(std::byte* data, int64_t count, DType dtype, const std::string& title) {
  if (world_ == 1 || count == 0) return;
  if (options_.reduction == ReductionOrder::library)
    return library_reduce(data, data, count, dtype, false, title);
  deterministic_sum(data, count, dtype, {}, title);
}

// MPI's own has no place here: parts that all ranks sum at once, each handed to the root, send as few bytes
// as any way can and give the bits of all_reduce.
void MpiGroup::reduce(std::byte* data, int64_t count, DType dtype, int root, const std::string& title) {
  if (world_ == 1 || count == 0) return;
  deterministic_sum(data, count, dtype, root, title);
}

void MpiGroup::deterministic_sum(std::byte* data, int64_t count, DType dtype, std::optional<int> taker,
                                 const std::string& title) {
  const int64_t part = (count + world_ - 1) / world_;
  const int64_t mine = std::min(count, part * rank_);
  RankedSum(*this, part, count, dtype)
      .run(data, data + mine * static_cast<int64_t>(size_of(dtype)), data, title, taker);
}

void MpiGroup::reduce_scatter(const std::byte* in, std::byte* out, int64_t count_each, int64_t stride,
                              DType dtype, const std::string& title) {
  const int64_t size = static_cast<int64_t>(size_of(dtype));
  if (count_each == 0) return;
  if (world_ == 1) {
    if (in != out) std::memmove(out, in, static_cast<std::size_t>(count_each * size));
    return;
  }
  // MPI's own refuses a part that is received within what is sent.
  const bool apart = out + count_each * size <= in || out >= in + stride * world_ * size;
  if (options_.reduction == ReductionOrder::library && stride == count_each && apart)
    return library_reduce(in, out, count_each, dtype, true, title);
  RankedSum(*this, stride, stride * (world_ - 1) + count_each, dtype).run(in, out, nullptr, title);
}

void MpiGroup::library_reduce(const std::byte* in, std::byte* out, int64_t count, DType dtype, bool scatter,
                              const std::string& title) {
  MPI_Datatype type = dtype == DType::f64 ? MPI_DOUBLE : dtype == DType::f32 ? MPI_FLOAT : MPI_UINT16_T;
  MPI_Op op = MPI_SUM;
  if (dtype == DType::bf16) check_mpi(MPI_Op_create(add_pair<bf16>, 1, &op), "MPI_Op_create");
  if (dtype == DType::f16) check_mpi(MPI_Op_create(add_pair<fp16>, 1, &op), "MPI_Op_create");
  const OnExit free_op([&] {
    if (op != MPI_SUM) MPI_Op_free(&op);
  });
  MpiWaits w = waits();
  if (scatter) {
    if (count > INT32_MAX)
      throw Error(cat("[", title, "] MPI counts to 2147483647, got ", count, " elements"));
    check_mpi(MPI_Ireduce_scatter_block(in, out, static_cast<int>(count), type, op, comm_,
                                        w.add(kNobodyKnows, true)),
              "MPI_Ireduce_scatter_block");
    return finish(w, title);
  }
  constexpr int64_t kStep = 16 << 20;
  for (int64_t first = 0; first < count; first += kStep) {
    std::byte* const place = out + first * static_cast<int64_t>(size_of(dtype));
    check_mpi(MPI_Iallreduce(MPI_IN_PLACE, place, static_cast<int>(std::min(kStep, count - first)), type, op,
                             comm_, w.add(kNobodyKnows, true)),
              "MPI_Iallreduce");
    finish(w, title);
  }
}

}  // namespace kiln
