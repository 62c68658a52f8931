#include "dist/comm/nccl_transport.h"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "device/cuda/cuda_check.h"
#include "dist/comm/nccl/call_watch.h"
#include "dist/comm/reduce_ranks.h"

namespace kiln {
namespace {

std::string hex_of(const ncclUniqueId& id) {
  std::string text;
  for (const char c : id.internal) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

ncclUniqueId id_of(const std::string& hex) {
  ncclUniqueId id{};
  if (hex.size() != 2 * sizeof id.internal) throw Error("[nccl] rank 0 gave no id of a communicator");
  for (std::size_t i = 0; i < sizeof id.internal; ++i)
    id.internal[i] = static_cast<char>(std::strtol(hex.substr(2 * i, 2).c_str(), nullptr, 16));
  return id;
}

// "node7 0000:18:00.0"
std::string own_gpu() {
  int device = 0;
  KILN_CUDA_CHECK(cudaGetDevice(&device));
  std::array<char, 64> host{}, bus{};
  ::gethostname(host.data(), host.size() - 1);
  KILN_CUDA_CHECK(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device));
  return cat(host.data(), " ", bus.data());
}

// NCCL refuses two ranks on one GPU of one machine. Ranks that claim to be of different machines, and talk
// over the loop-back, are let through: slow, and good enough to test with. Few blocks each, for all must be
// on the device at once. What the user has set stays.
void allow_sharing(int rank) {
  const char* const job = std::getenv("KILN_JOB");
  ::setenv("NCCL_HOSTID", cat("kiln-", job == nullptr ? "" : job, "-", rank).c_str(), 0);
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  ::setenv("NCCL_IB_DISABLE", "1", 0);
  ::setenv("NCCL_MAX_CTAS", "4", 0);
}

ncclDataType_t type_of(DType t) {
  switch (t) {
    case DType::f64:
      return ncclFloat64;
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    default:
      throw Error(cat("NCCL sums floating tensors here, not ", name_of(t)));
  }
}

class NcclTransport final : public Transport {
 public:
  NcclTransport(Backend& backend, std::unique_ptr<NcclComm> comm, std::unique_ptr<Transport> roll_call,
                int rank, int world, const MpiOptions& options)
      : backend_(backend),
        options_(options),
        rank_(rank),
        world_(world),
        nccl_(load_nccl()),
        comm_(std::move(comm)),
        roll_call_(std::move(roll_call)),
        watch_(backend, *comm_, options.comm.timeout, [this](const std::string& why) {
          if (roll_call_) roll_call_->abort(why);
        }) {
    KILN_CUDA_CHECK(cudaGetDevice(&device_));
    if (options.reduction == ReductionOrder::deterministic && world > kMaxThreadRanks)
      throw Error(
          cat("sums in the order of ranks take at most ", kMaxThreadRanks, " NCCL ranks, not ", world),
          "leave the order to NCCL, or use --transport mpi");
  }

  std::string_view name() const override { return "nccl"; }
  int rank() const override { return rank_; }
  int world() const override { return world_; }
  // Alone, NCCL is called on the rank's own thread and stream: the way over another's costs more than the
  // call.
  bool is_local() const override { return world_ == 1; }
  std::optional<std::chrono::steady_clock::time_point> all_arrived() const override {
    return roll_call_ ? roll_call_->all_arrived() : std::nullopt;
  }

  void run(const CommCall& call, Stream stream) override {
    KILN_CUDA_CHECK(cudaSetDevice(device_));  // of the communicator's own thread
    if (const std::string failure = watch_.failure(); !failure.empty()) throw Error(failure);
    if (roll_call_) roll_call_->run(call, stream);
    if (call.what == Collective::barrier) {
      // The roll call is one.
      if (!roll_call_ && world_ > 1) throw Error("[barrier] this group of NCCL ranks has no roll call");
      return;
    }
    if (call.count == 0 && call.take == 0) return;
    const std::string title = call.subject.empty() ? std::string(name_of(call.what))
                                                   : cat(name_of(call.what), " of ", call.subject);
    if (world_ > 1) watch_.begin(title, stream);
    try {
      queue(call, stream, title);
    } catch (...) {  // half of it may be on the stream, with tensors that are given back now
      comm_->abort();
      throw;
    }
    if (world_ > 1) watch_.end(stream);
  }

  Bytes scratch(const CommCall& call) const override {
    return sums_in_order(call) ? deterministic_scratch(call, world_) : Bytes{};
  }

  std::unique_ptr<Transport> split(int color, int key) override {
    KILN_CUDA_CHECK(cudaSetDevice(device_));
    std::unique_ptr<Transport> rendezvous = roll_call_ ? roll_call_->split(color, key) : nullptr;
    const int rank = rendezvous ? rendezvous->rank() : 0, world = rendezvous ? rendezvous->world() : 1;
    std::unique_ptr<NcclComm> part = comm_->split(color, key, world);
    if (!part) return nullptr;
    if (!rendezvous && world_ > 1)
      throw Error("[split] groups of NCCL ranks need MPI for their rendezvous", "start them with `kiln run`");
    return std::make_unique<NcclTransport>(backend_, std::move(part), std::move(rendezvous), rank, world,
                                           options_);
  }

  void abort(const std::string& why) override {
    if (roll_call_) roll_call_->abort(why);
    comm_->abort();
  }

 private:
  void queue(const CommCall& call, Stream stream, const std::string& title) {
    if (sums_in_order(call)) {
      sum(call, stream, title);
    } else {
      comm_->run(title, [&](ncclComm_t comm) {
        return enqueue(call, comm, static_cast<cudaStream_t>(stream.handle));
      });
    }
  }

  // NCCL's own word for the call.
  ncclResult_t enqueue(const CommCall& call, ncclComm_t comm, cudaStream_t stream) {
    const auto count = static_cast<std::size_t>(call.count);
    const std::size_t bytes = call.bytes().value;
    switch (call.what) {
      case Collective::all_reduce:
        return nccl_.all_reduce(call.in, call.out, count, type_of(call.dtype), ncclSum, comm, stream);
      case Collective::reduce_scatter:
        return nccl_.reduce_scatter(call.in, call.out, count / static_cast<std::size_t>(world_),
                                    type_of(call.dtype), ncclSum, comm, stream);
      case Collective::reduce:
        return nccl_.reduce(call.in, call.out, count, type_of(call.dtype), ncclSum, call.peer, comm, stream);
      case Collective::all_gather:
        return nccl_.all_gather(call.in, call.out, bytes, ncclUint8, comm, stream);
      case Collective::broadcast:
        return nccl_.broadcast(call.in, call.out, bytes, ncclUint8, call.peer, comm, stream);
      case Collective::send:
        return nccl_.send(call.in, bytes, ncclUint8, call.peer, comm, stream);
      case Collective::recv:
        return nccl_.recv(call.out, bytes, ncclUint8, call.peer, comm, stream);
      case Collective::send_recv: {
        const std::size_t take = static_cast<std::size_t>(call.take) * size_of(call.dtype);
        return at_once([&](const auto& add) {
          add(nccl_.send(call.in, bytes, ncclUint8, call.peer, comm, stream));
          add(nccl_.recv(call.out, take, ncclUint8, call.source, comm, stream));
        });
      }
      case Collective::barrier:
        break;
    }
    return ncclSuccess;
  }

  // In one group, or each would wait for the other's. A group that was begun must be ended.
  template <class Calls>
  ncclResult_t at_once(Calls calls) {
    ncclResult_t first = nccl_.group_start();
    if (first != ncclSuccess) return first;
    calls([&](ncclResult_t r) {
      if (first == ncclSuccess && r != ncclInProgress) first = r;
    });
    const ncclResult_t end = nccl_.group_end();
    return first == ncclSuccess ? end : first;
  }

  // --- sums in the order of ranks: NCCL carries the parts, and each rank adds up one of them.

  // Rank r's part of a sum is at r * bytes, and has length(r) elements.
  struct Parts {
    int64_t each, count;
    std::size_t bytes;
    Parts(const CommCall& call, int world)
        : each((call.count + world - 1) / world),
          count(call.count),
          bytes(static_cast<std::size_t>(each) * size_of(call.dtype)) {}
    int64_t length(int rank) const { return std::clamp<int64_t>(count - rank * each, 0, each); }
    std::byte* at(std::byte* data, int rank) const { return data + static_cast<std::size_t>(rank) * bytes; }
  };

  bool sums_in_order(const CommCall& call) const {
    return options_.reduction == ReductionOrder::deterministic && world_ > 1 && adds_up(call.what);
  }

  void sum(const CommCall& call, Stream stream, const std::string& title) {
    const Parts parts(call, world_);
    const auto queue = static_cast<cudaStream_t>(stream.handle);
    const auto bytes = [&](int rank) {
      return static_cast<std::size_t>(parts.length(rank)) * size_of(call.dtype);
    };
    const auto slot = [&](int rank) { return rank > rank_ ? rank - 1 : rank; };  // this rank's own is in `in`
    const auto each_other = [&](const auto& visit) {
      for (int r = 0; r < world_; ++r) {
        if (r != rank_) visit(r);
      }
    };
    comm_->run(title, [&](ncclComm_t comm) {
      return at_once([&](const auto& add) {
        each_other([&](int r) {
          if (bytes(r) > 0) add(nccl_.send(parts.at(call.in, r), bytes(r), ncclUint8, r, comm, queue));
          if (bytes(rank_) > 0)
            add(nccl_.recv(parts.at(call.scratch, slot(r)), bytes(rank_), ncclUint8, r, comm, queue));
        });
      });
    });
    RankMemory src, dst;
    src.count = world_;
    for (int r = 0; r < world_; ++r)
      src.data[r] = r == rank_ ? parts.at(call.in, r) : parts.at(call.scratch, slot(r));
    dst.count = 1;
    dst.data[0] = call.what == Collective::reduce_scatter ? call.out : parts.at(call.out, rank_);
    if (bytes(rank_) > 0) reduce_ranks(backend_, stream, dst, src, parts.length(rank_), call.dtype);
    if (call.what == Collective::reduce_scatter) return;
    const auto takes = [&](int rank) { return call.what == Collective::all_reduce || rank == call.peer; };
    comm_->run(title, [&](ncclComm_t comm) {
      return at_once([&](const auto& add) {
        each_other([&](int r) {
          if (takes(r) && bytes(rank_) > 0)
            add(nccl_.send(dst.data[0], bytes(rank_), ncclUint8, r, comm, queue));
          if (takes(rank_) && bytes(r) > 0)
            add(nccl_.recv(parts.at(call.out, r), bytes(r), ncclUint8, r, comm, queue));
        });
      });
    });
  }

  Backend& backend_;
  MpiOptions options_;
  int rank_, world_;
  int device_ = 0;
  const Nccl& nccl_;
  std::unique_ptr<NcclComm> comm_;
  std::unique_ptr<Transport> roll_call_;
  CallWatch watch_;
};

}  // namespace

std::unique_ptr<Transport> make_nccl_transport(Backend& backend, NcclRendezvous& rendezvous,
                                               const MpiOptions& options) {
  if (backend.host_readable())
    throw Error("NCCL carries tensors on GPUs only", "use --device cuda, or --transport mpi",
                ErrorKind::usage);
  const Nccl& nccl = load_nccl();
  if (!nccl.why_not.empty())
    throw Error(cat("[nccl] ", nccl.why_not),
                "install libnccl2, or put its folder into LD_LIBRARY_PATH; or use --transport mpi",
                ErrorKind::unavailable);
  std::vector<std::string> gpus = rendezvous.exchange(own_gpu());
  std::sort(gpus.begin(), gpus.end());
  if (std::adjacent_find(gpus.begin(), gpus.end()) != gpus.end()) allow_sharing(rendezvous.rank());
  std::string mine = "-";
  if (rendezvous.rank() == 0) {
    ncclUniqueId id{};
    const ncclResult_t r = nccl.get_unique_id(&id);
    mine = r == ncclSuccess ? hex_of(id) : cat("error: ", nccl.error_string(r));
  }
  const std::string first =
      rendezvous.exchange(mine).front();  // an error too: no rank waits for the others then
  if (first.starts_with("error")) throw Error(cat("[nccl] rank 0 cannot make an id: ", first));
  auto comm =
      std::make_unique<NcclComm>(rendezvous.world(), rendezvous.rank(), id_of(first), options.comm.timeout);
  std::unique_ptr<Transport> roll_call;
  if (rendezvous.world() > 1) roll_call = rendezvous.roll_call(backend, options);
  return std::make_unique<NcclTransport>(backend, std::move(comm), std::move(roll_call), rendezvous.rank(),
                                         rendezvous.world(), options);
}

}  // namespace kiln
