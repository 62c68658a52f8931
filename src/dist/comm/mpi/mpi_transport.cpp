#include "dist/comm/mpi/mpi_transport.h"

#include <algorithm>

#include "base/error.h"
#include "base/on_exit.h"

namespace kiln {
namespace {

constexpr std::size_t kStageBytes = 32u << 20;

std::string title_of(const CommCall& call) {
  std::string title(name_of(call.what));
  if (!call.subject.empty()) title += " of " + call.subject;
  return title;
}

bool is_parcel(Collective c) {
  return c == Collective::send || c == Collective::recv || c == Collective::send_recv;
}

// What this call gives and what it takes, with whom; peer -1: nothing.
struct Ends {
  Parcel given, taken;
  explicit Ends(const CommCall& c) {
    const bool both = c.what == Collective::send_recv;
    const std::size_t take = both ? static_cast<std::size_t>(c.take) * size_of(c.dtype) : c.bytes().value;
    given = {c.in, c.bytes().value, c.what == Collective::recv ? -1 : c.peer};
    taken = {c.out, take, c.what == Collective::recv ? c.peer : both ? c.source : -1};
  }
};

}  // namespace

MpiTransport::MpiTransport(MPI_Comm comm, std::shared_ptr<MpiAlarm> alarm, Backend& backend,
                           const MpiOptions& options)
    : alarm_(std::move(alarm)), backend_(backend), group_(comm, *alarm_, options) {}

void MpiTransport::run(const CommCall& call, Stream stream) {
  const MpiOptions& options = group_.options();
  if (options.watch) options.watch(&call);
  const OnExit over([&] {
    if (options.watch) options.watch(nullptr);
  });
  const std::string title = title_of(call);
  // A GPU's rank comes when its tensor is ready, and not before: the others would wait inside the collective.
  if (!options.roll_call_only && !backend_.host_readable()) backend_.synchronize(stream);
  if (is_parcel(call.what)) {
    group_.greet(call);
  } else {
    group_.roll_call(title, call.text(), calls_++);
  }
  arrived_ = std::chrono::steady_clock::now();
  if ((call.count == 0 && call.take == 0) || options.roll_call_only) return;
  if (backend_.host_readable()) {
    run_on_host(call, title);
  } else {
    run_staged(call, title, stream);
  }
}

void MpiTransport::run_on_host(const CommCall& call, const std::string& title) {
  const std::size_t bytes = call.bytes().value;
  switch (call.what) {
    case Collective::all_reduce:
      return group_.all_reduce(call.out, call.count, call.dtype, title);
    case Collective::reduce:
      return group_.reduce(call.out, call.count, call.dtype, call.peer, title);
    case Collective::reduce_scatter: {
      const int64_t each = call.count / world();
      return group_.reduce_scatter(call.in, call.out, each, each, call.dtype, title);
    }
    case Collective::all_gather:
      return group_.all_gather(call.in, call.out, bytes, bytes, title);
    case Collective::broadcast:
      return group_.broadcast(call.out, bytes, call.peer, title);
    case Collective::send:
    case Collective::recv:
    case Collective::send_recv: {
      const Ends ends(call);
      return group_.pass(ends.given, ends.taken, title);
    }
    case Collective::barrier:
      return;
  }
}

std::byte* MpiTransport::stage() {
  if (!stage_) stage_ = std::make_unique<PinnedMemory>(backend_, Bytes{kStageBytes});
  return stage_->data();
}

// In steps that fit the pinned piece: to the host, over MPI, back to the device. The host waits for each, for
// MPI must not begin before the bytes are there, nor the next step before they have left.
void MpiTransport::run_staged(const CommCall& call, const std::string& title, Stream stream) {
  if (is_parcel(call.what)) return pass_staged(call, title, stream);
  const auto size = static_cast<int64_t>(size_of(call.dtype));
  const int64_t space = static_cast<int64_t>(kStageBytes) / size, ranks = world();
  const bool parts = call.what == Collective::reduce_scatter || call.what == Collective::all_gather;
  const int64_t each = call.what == Collective::reduce_scatter ? call.count / ranks : call.count;
  const int64_t step = std::max<int64_t>(1, parts ? space / (ranks + 1) : space / 2);
  for (int64_t first = 0; first < each; first += step) {
    stage_piece({call, title, first, std::min(step, each - first), each, stage() + step * size}, stream);
    backend_.synchronize(stream);
  }
}

// One piece by way of the host: fetched, passed on by MPI, put where it belongs.
void MpiTransport::stage_piece(const StagedPiece& p, Stream stream) {
  const CommCall& call = p.call;
  const auto size = static_cast<int64_t>(size_of(call.dtype));
  const int64_t n = p.count, ranks = world();
  std::byte* const host = stage();
  const auto fetch = [&](std::byte* to, int64_t from) {  // `from` in elements of the tensor
    backend_.copy_to_host(to, call.in + from * size, static_cast<std::size_t>(n * size), stream);
  };
  const auto put = [&](int64_t to, const std::byte* from) {
    backend_.copy_to_device(call.out + to * size, from, static_cast<std::size_t>(n * size), stream);
  };
  const auto wait = [&] { backend_.synchronize(stream); };
  switch (call.what) {
    case Collective::all_reduce:
      fetch(host, p.first);
      wait();
      group_.all_reduce(host, n, call.dtype, p.title);
      return put(p.first, host);
    case Collective::reduce:
      fetch(host, p.first);
      wait();
      group_.reduce(host, n, call.dtype, call.peer, p.title);
      if (call.peer == rank()) put(p.first, host);
      return;
    case Collective::reduce_scatter:
      for (int64_t r = 0; r < ranks; ++r) fetch(p.second + r * n * size, r * p.each + p.first);
      wait();
      group_.reduce_scatter(p.second, host, n, n, call.dtype, p.title);
      return put(p.first, host);
    case Collective::all_gather: {
      const auto bytes = static_cast<std::size_t>(n * size);
      fetch(host, p.first);
      wait();
      group_.all_gather(host, p.second, bytes, bytes, p.title);
      for (int64_t r = 0; r < ranks; ++r) put(r * p.each + p.first, p.second + r * n * size);
      return;
    }
    case Collective::broadcast:
      if (call.peer == rank()) fetch(host, p.first);
      wait();
      group_.broadcast(host, static_cast<std::size_t>(n * size), call.peer, p.title);
      if (call.peer != rank()) put(p.first, host);
      return;
    case Collective::send:
    case Collective::recv:
    case Collective::send_recv:
    case Collective::barrier:
      return;
  }
}

// The two directions may differ in size; each step takes half of the pinned piece for either.
void MpiTransport::pass_staged(const CommCall& call, const std::string& title, Stream stream) {
  constexpr std::size_t kHalf = kStageBytes / 2;
  const Ends ends(call);
  std::byte* const host = stage();
  const std::size_t bytes =
      std::max(ends.given.peer >= 0 ? ends.given.bytes : 0, ends.taken.peer >= 0 ? ends.taken.bytes : 0);
  for (std::size_t first = 0; first < bytes; first += kHalf) {
    const auto part = [&](const Parcel& p) { return std::min(kHalf, p.bytes - std::min(p.bytes, first)); };
    const Parcel given{host, part(ends.given), ends.given.peer},
        taken{host + kHalf, part(ends.taken), ends.taken.peer};
    if (given.peer >= 0 && given.bytes > 0)
      backend_.copy_to_host(given.data, ends.given.data + first, given.bytes, stream);
    backend_.synchronize(stream);
    group_.pass(given, taken, title);
    if (taken.peer >= 0 && taken.bytes > 0)
      backend_.copy_to_device(ends.taken.data + first, taken.data, taken.bytes, stream);
    backend_.synchronize(stream);
  }
}

std::unique_ptr<Transport> MpiTransport::split(int color, int key) {
  group_.roll_call("split", "split", calls_++);  // MPI_Comm_split itself knows no time-out
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(group_.comm(), color < 0 ? MPI_UNDEFINED : color, key, &part), "MPI_Comm_split");
  if (part == MPI_COMM_NULL) return nullptr;
  return std::make_unique<MpiTransport>(part, alarm_, backend_, group_.options());
}

}  // namespace kiln
