#include "dist/comm/mpi/mpi_group.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "dist/comm/mpi/mpi_tags.h"

namespace kiln {
namespace {

constexpr std::size_t kMessageBytes = 64u << 20;  // MPI counts in int, and a time-out is for one message

}  // namespace

MpiGroup::MpiGroup(MPI_Comm comm, MpiAlarm& alarm, const MpiOptions& options)
    : comm_(comm), alarm_(alarm), options_(options) {
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &world_);
  MPI_Group here = MPI_GROUP_NULL, whole = MPI_GROUP_NULL;
  MPI_Comm_group(comm_, &here);
  MPI_Comm_group(MPI_COMM_WORLD, &whole);
  std::vector<int> places(static_cast<std::size_t>(world_));
  std::iota(places.begin(), places.end(), 0);
  members_.resize(places.size());
  MPI_Group_translate_ranks(here, world_, places.data(), whole, members_.data());
  MPI_Group_free(&here);
  MPI_Group_free(&whole);
}

// Not MPI_Comm_free, which waits for the other ranks where they may be gone. A run makes few groups.
MpiGroup::~MpiGroup() = default;

std::string MpiGroup::names(const std::vector<int>& ranks) const {
  std::string s;
  for (int r : ranks) {
    if (r == kNobodyKnows) return "another rank";
    s += cat(s.empty() ? "rank " : ", rank ", members_[static_cast<std::size_t>(r)]);
  }
  return s.empty() ? "no rank" : s;
}

void MpiGroup::send(MpiWaits& waits, const void* data, std::size_t bytes, int to, int tag) {
  const auto* place = static_cast<const std::byte*>(data);
  for (std::size_t done = 0; done < bytes; done += kMessageBytes)
    check_mpi(MPI_Isend(place + done, static_cast<int>(std::min(kMessageBytes, bytes - done)), MPI_BYTE, to,
                        tag, comm_, waits.add(to, false)),
              "MPI_Isend");
}

void MpiGroup::receive(MpiWaits& waits, void* data, std::size_t bytes, int from, int tag) {
  auto* place = static_cast<std::byte*>(data);
  for (std::size_t done = 0; done < bytes; done += kMessageBytes)
    check_mpi(MPI_Irecv(place + done, static_cast<int>(std::min(kMessageBytes, bytes - done)), MPI_BYTE, from,
                        tag, comm_, waits.add(from, true)),
              "MPI_Irecv");
}

void MpiGroup::finish(MpiWaits& waits, const std::string& title) {
  if (waits.all()) return waits.forget();
  throw Error(cat("[", title, "] ", names({rank_}), " waited ", options_.comm.timeout.count(),
                  " ms; not done: ", names(waits.open_peers())),
              "see what that rank is doing; --comm-timeout sets how long to wait");
}

void MpiGroup::all_gather(const std::byte* in, std::byte* out, std::size_t bytes, std::size_t stride,
                          const std::string& title) {
  std::byte* const mine = out + static_cast<std::size_t>(rank_) * stride;
  if (mine != in && bytes > 0) std::memmove(mine, in, bytes);
  MpiWaits w = waits();
  for (std::size_t first = 0; first < bytes; first += kMessageBytes) {
    const std::size_t n = std::min(kMessageBytes, bytes - first);
    for (int i = 1; i < world_; ++i) {  // each rank begins with another neighbour
      const int to = (rank_ + i) % world_, from = (rank_ - i + world_) % world_;
      receive(w, out + static_cast<std::size_t>(from) * stride + first, n, from, kDataTag);
      send(w, mine + first, n, to, kDataTag);
    }
    finish(w, title);
  }
}

// Down a binomial tree, in pieces: a rank passes one on while it takes the next. By hand, for MPI_Ibcast does
// not say for whom it waits.
void MpiGroup::broadcast(std::byte* data, std::size_t bytes, int root, const std::string& title) {
  constexpr std::size_t kPiece = 1u << 20;
  const int place = (rank_ - root + world_) % world_;  // the root's is 0
  int parent = -1;
  std::vector<int> children;
  for (int bit = 1; bit < world_; bit *= 2) {
    if ((place & bit) != 0) {
      parent = (place - bit + root) % world_;
      break;
    }
    if (place + bit < world_) children.push_back((place + bit + root) % world_);
  }
  std::reverse(children.begin(), children.end());  // the largest part of the tree first
  MpiWaits going = waits();
  for (std::size_t first = 0; first < bytes; first += kPiece) {
    const std::size_t n = std::min(kPiece, bytes - first);
    if (parent >= 0) {
      MpiWaits coming = waits();
      receive(coming, data + first, n, parent, kDataTag);
      finish(coming, title);
    }
    finish(going, title);
    for (int child : children) send(going, data + first, n, child, kDataTag);
  }
  finish(going, title);
}

void MpiGroup::pass(const Parcel& given, const Parcel& taken, const std::string& title) {
  const std::size_t bytes = std::max(given.peer >= 0 ? given.bytes : 0, taken.peer >= 0 ? taken.bytes : 0);
  MpiWaits w = waits();
  for (std::size_t first = 0; first < bytes; first += kMessageBytes) {
    const auto part = [&](const Parcel& p) { return p.bytes - std::min(p.bytes, first); };
    if (taken.peer >= 0)
      receive(w, taken.data + first, std::min(kMessageBytes, part(taken)), taken.peer, kDataTag);
    if (given.peer >= 0)
      send(w, given.data + first, std::min(kMessageBytes, part(given)), given.peer, kDataTag);
    finish(w, title);
  }
}

void MpiGroup::gather_small(const void* mine, void* all, int bytes, const std::string& title) {
  MpiWaits w = waits();
  check_mpi(MPI_Iallgather(mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, comm_, w.add(kNobodyKnows, true)),
            "MPI_Iallgather");
  if (!w.all())
    throw Error(cat("[", title, "] ", names({rank_}), " waited ", options_.comm.timeout.count(),
                    " ms for the other ranks"),
                "see whether all ranks have started");
}

}  // namespace kiln
