#include "dist/ranks.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/build_info.h"
#include "base/crc32c.h"
#include "device/cpu/host_limits.h"
#include "device/gpu_info.h"
#include "dist/comm/local_transport.h"
#include "dist/comm/nccl_transport.h"
#include "dist/comm/thread_group.h"

namespace kiln {
namespace {

template <class T>
void read_variable(const ReadEnvironment& environment, const char* name, T least, T most, T& value) {
  const char* const text = environment(name);
  if (text == nullptr) return;
  const std::string_view t(text);
  T read{};
  const auto [end, error] = std::from_chars(t.data(), t.data() + t.size(), read);
  if (error != std::errc{} || end != t.data() + t.size() || !(read >= least && read <= most))
    throw Error(cat(name, " is '", t, "'; expected a number from ", least, " to ", most),
                "`kiln run` sets it; unset it otherwise");
  value = read;
}

// A card's lines, each a name and what must be the same.
std::vector<std::string> lines_of(const std::string& card) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < card.size();) {
    const std::size_t end = std::min(card.find('\n', at), card.size());
    lines.push_back(card.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

void print_nothing_more() {
  std::fflush(stdout);
  const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nothing < 0) return;
  ::dup2(nothing, STDOUT_FILENO);
  ::close(nothing);
}

// Made before anything fails, and gone again where nothing did.
class FlightFolder {
 public:
  explicit FlightFolder(std::string path) : path_(std::move(path)) {
    std::error_code ignored;  // without it ranks say that there is no record, and go on
    if (!path_.empty()) std::filesystem::create_directories(path_, ignored);
  }
  ~FlightFolder() {
    std::error_code ignored;  // not empty: there are records in it
    if (!path_.empty()) std::filesystem::remove(path_, ignored);
  }
  FlightFolder(const FlightFolder&) = delete;
  FlightFolder& operator=(const FlightFolder&) = delete;

 private:
  std::string path_;
};

RankOptions options_of(const RankOptions& given, const RankEnv& env, int rank, int world) {
  RankOptions mine = given;
  mine.rank = rank;
  mine.world = world;
  if (mine.threads == 0)
    mine.threads = std::max(1, read_host_limits().cpus_usable / std::max(1, env.local_world));
  if (mine.device.type == DeviceType::cuda) {
    std::string why;
    const int gpus = static_cast<int>(list_gpus(&why).size());
    if (gpus > 0) mine.device = Device::cuda(env.local_rank % gpus);  // fewer GPUs than ranks: they share
  }
  return mine;
}

void run_process_rank(const RanksRequest& request, const RankOptions& given, const RankBody& body) {
  const RankEnv env = read_rank_env();
  const char* const folder = std::getenv(kLaunchFolderVariable);
  const auto board = folder == nullptr ? nullptr : RankBoard::open(cat(folder, "/board"), env.rank);
  const bool over_mpi = request.transport == "mpi" || (mpi_built_in() && env.source == "Open MPI");
  auto mpi = over_mpi ? start_mpi() : nullptr;
  const int rank = mpi ? mpi->rank() : env.rank, world = mpi ? mpi->world() : env.world;
  if (mpi && env.launched() && (rank != env.rank || world != env.world))
    throw Error(
        cat(env.source, " says rank ", env.rank, " of ", env.world, ", MPI says rank ", rank, " of ", world),
        "the launcher and the MPI library kiln was built with must belong together: use the mpirun of "
        "that MPI");
  if (request.world > 0 && request.world != world)
    throw Error(
        cat(request.world, " ranks were asked for, ", world, world == 1 ? " was" : " were", " started"),
        cat("use `kiln run --nproc ", request.world, " --transport ", request.transport, " -- COMMAND`"),
        ErrorKind::usage);
  MpiOptions options;
  options.comm = request.comm;
  options.sums = request.sums;
  if (board) {
    options.watch = [&board](const CommCall* call) {
      call == nullptr ? board->leave() : board->enter(call->text());
    };
    board->join();
  }
  if (rank != 0) print_nothing_more();
  const std::string card = rank_card(request.config);
  RankOptions own = options_of(given, env, rank, world);
  std::unique_ptr<NcclRendezvous> meeting;
  if (mpi) {
    check_cards(mpi->exchange(card, options));
  } else {
    meeting = meet_over_tcp(env, request.comm);
    check_cards(meeting->exchange(card));
  }
  {
    RankContext ctx(own);
    std::unique_ptr<Transport> transport;
    if (request.transport == "nccl") {
      if (mpi) meeting = meet_over_mpi(*mpi, options);
      transport = make_nccl_transport(ctx.backend(), *meeting, options);
    } else {
      transport = mpi->transport(ctx.backend(), options);
    }
    Communicator ranks(ctx, std::move(transport), request.comm);
    try {
      body(ctx, ranks);
      ranks.drain(ctx);
      ctx.synchronize();
      ranks.barrier(ctx, "end of the run");
    } catch (const Error& e) {
      if (board) board->fail(e);  // now, and not after MPI's leave: the launcher asks who has noticed
      ranks.abort(e.what());
      throw;
    } catch (const std::exception& e) {
      ranks.abort(e.what());
      throw;
    }
  }
  if (mpi) mpi->finish();
  if (board) board->finish();
}

// One rank needs neither a thread of its own nor anybody to talk to.
void run_alone(const RanksRequest& request, const RankOptions& options, const RankBody& body) {
  RankContext ctx(options);
  Communicator alone(ctx, make_alone_transport(ctx.backend()), request.comm);
  body(ctx, alone);
  ctx.synchronize();
}

}  // namespace

std::function<void(int64_t)> step_notes() {
  const char* const folder = std::getenv(kLaunchFolderVariable);
  if (folder == nullptr) return [](int64_t) {};
  const std::shared_ptr<RankBoard> board = RankBoard::open(cat(folder, "/board"), read_rank_env().rank);
  return [board](int64_t step) {
    if (board) board->step(step);
  };
}

RanksRequest launched_request(const ReadEnvironment& environment) {
  RanksRequest r;
  const RankEnv env = read_rank_env(environment);
  if (env.launched()) r.world = env.world;
  // torchrun's ranks meet over TCP, and have no MPI.
  if (env.launched() && env.world > 1) r.transport = env.source == "torchrun" ? "nccl" : "mpi";
  if (const char* const transport = environment(kTransportVariable)) r.transport = transport;
  int world = 0;
  read_variable(environment, kRanksVariable, 1, 1 << 16, world);
  if (r.transport == "threads") r.world = std::max(1, world);
  if (const char* const folder = environment(kFlightVariable)) r.comm.flight_folder = folder;
  double seconds = 0;
  read_variable(environment, kTimeoutVariable, 0.001, 1e6, seconds);
  if (seconds > 0) r.comm.timeout = std::chrono::milliseconds(static_cast<int64_t>(1e3 * seconds));
  return r;
}

RanksRequest launched_request() {
  return launched_request([](const char* name) { return std::getenv(name); });
}

std::string rank_card(const std::string& config) {
  const BuildInfo& b = build_info();
  const uint32_t sum = crc32c(std::as_bytes(std::span(config)));
  std::array<char, 16> hex{};
  std::snprintf(hex.data(), hex.size(), "%08x", sum);
  return cat("version ", b.version, "\nbuild ", b.build_id, "\nconfig ", hex.data(), "\n");
}

void check_cards(const std::vector<std::string>& cards) {
  const std::vector<std::string> first = lines_of(cards.front());
  for (std::size_t r = 1; r < cards.size(); ++r) {
    const std::vector<std::string> own = lines_of(cards[r]);
    for (std::size_t i = 0; i < std::max(first.size(), own.size()); ++i) {
      const std::string a = i < first.size() ? first[i] : "nothing", b = i < own.size() ? own[i] : "nothing";
      if (a == b) continue;
      const bool config = a.starts_with("config");
      throw Error(config ? cat("rank ", r, " was given other options than rank 0: its configuration is ",
                               b.substr(b.find(' ') + 1), ", rank 0's is ", a.substr(a.find(' ') + 1))
                         : cat("rank ", r, " runs another kiln than rank 0: ", b, " and not ", a),
                  config ? "start every rank with the same command line and the same files"
                         : "put the same build on every machine");
    }
  }
}

void run_ranks(const RanksRequest& request, const RankOptions& options, const RankBody& body) {
  const FlightFolder flight(request.comm.flight_folder);
  if (request.transport == "threads") {
    RankOptions each = options;
    const int world = std::max(1, request.world);
    if (world == 1) return run_alone(request, each, body);
    if (each.threads == 0) each.threads = std::max(1, read_host_limits().cpus_usable / world);
    return run_thread_ranks(world, each, body, request.comm);
  }
  if (request.transport != "mpi" && request.transport != "nccl")
    throw Error(cat("there is no transport '", request.transport, "'"), "it is threads, mpi or nccl",
                ErrorKind::usage);
  run_process_rank(request, options, body);
}

}  // namespace kiln
