#include "dist/launch/ranks.h"

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
#include "dist/comm/threads/thread_group.h"
#include "dist/launch/transports.h"

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

// A fingerprint's lines, each a name and what must be the same.
std::vector<std::string> lines_of(const std::string& fingerprint) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < fingerprint.size();) {
    const std::size_t end = std::min(fingerprint.find('\n', at), fingerprint.size());
    lines.push_back(fingerprint.substr(at, end - at));
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
    if (path_.empty()) return;
    std::error_code ignored;  // without it ranks say that there is no record, and continue
    made_parent_ = !std::filesystem::exists(std::filesystem::path(path_).parent_path(), ignored);
    std::filesystem::create_directories(path_, ignored);
  }
  ~FlightFolder() {
    if (path_.empty()) return;
    std::error_code ignored;  // not empty: there are records in it
    std::filesystem::remove(path_, ignored);
    if (made_parent_) std::filesystem::remove(std::filesystem::path(path_).parent_path(), ignored);
  }
  FlightFolder(const FlightFolder&) = delete;
  FlightFolder& operator=(const FlightFolder&) = delete;

 private:
  std::string path_;
  bool made_parent_ = false;
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

// One rank needs neither its own thread nor a rendezvous.
void run_alone(const CommOptions& comm, const RankOptions& options, const RankBody& body) {
  RankContext ctx(options);
  Communicator alone(ctx, make_alone_transport(ctx.backend()), comm);
  body(ctx, alone);
  ctx.synchronize();
}

}  // namespace

std::function<void(int64_t)> step_notes() {
  const char* const folder = std::getenv(kLaunchFolderVariable);
  if (folder == nullptr) return [](int64_t) {};
  const std::shared_ptr<RankStatusPage> status_page =
      RankStatusPage::open(cat(folder, "/status"), read_rank_env().rank);
  return [status_page](int64_t step) {
    if (status_page) status_page->step(step);
  };
}

RanksRequest launched_request(const ReadEnvironment& environment) {
  RanksRequest r;
  const RankEnv env = read_rank_env(environment);
  if (env.launched()) r.world = env.world;
  // torchrun's ranks rendezvous over TCP, and have no MPI.
  if (env.launched() && env.world > 1) r.transport = env.source == "torchrun" ? "nccl" : "mpi";
  if (const char* const transport = environment(kTransportVariable)) r.transport = transport;
  int world = 0;
  read_variable(environment, kRanksVariable, 1, 1 << 16, world);
  if (!find_transport(r.transport).processes) r.world = std::max(1, world);
  if (const char* const folder = environment(kFlightVariable)) r.comm.flight_folder = folder;
  double seconds = 0;
  read_variable(environment, kTimeoutVariable, 0.001, 1e6, seconds);
  if (seconds > 0) r.comm.timeout = std::chrono::milliseconds(static_cast<int64_t>(1e3 * seconds));
  return r;
}

RanksRequest launched_request() {
  return launched_request([](const char* name) { return std::getenv(name); });
}

std::string config_fingerprint(const std::string& config) {
  const BuildInfo& b = build_info();
  const uint32_t sum = crc32c(std::as_bytes(std::span(config)));
  std::array<char, 16> hex{};
  std::snprintf(hex.data(), hex.size(), "%08x", sum);
  return cat("version ", b.version, "\nbuild ", b.build_id, "\nconfig ", hex.data(), "\n");
}

void check_fingerprints(const std::vector<std::string>& fingerprints) {
  const std::vector<std::string> first = lines_of(fingerprints.front());
  for (std::size_t r = 1; r < fingerprints.size(); ++r) {
    const std::vector<std::string> own = lines_of(fingerprints[r]);
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

// This process as one of the ranks.
class Ranks::Process {
 public:
  explicit Process(const RanksRequest& request)
      : transport_(find_transport(request.transport)),
        reduction_(request.reduction.value_or(transport_.reduction)),
        env_(read_rank_env()) {
    const char* const folder = std::getenv(kLaunchFolderVariable);
    if (folder != nullptr) status_page_ = RankStatusPage::open(cat(folder, "/status"), env_.rank);
    if (transport_.needs_mpi || (mpi_built_in() && env_.source == "Open MPI")) mpi_ = start_mpi();
    rank_ = mpi_ ? mpi_->rank() : env_.rank;
    world_ = mpi_ ? mpi_->world() : env_.world;
    check_world(request);
    if (status_page_) status_page_->join();
    if (rank_ != 0) print_nothing_more();
    const std::string fingerprint = config_fingerprint(request.config);
    if (mpi_) {
      check_fingerprints(mpi_->exchange(fingerprint, options(request.comm)));
    } else {
      rendezvous_ = rendezvous_over_tcp(env_, request.comm);
      check_fingerprints(rendezvous_->exchange(fingerprint));
    }
  }

  void run(const RankOptions& given, const CommOptions& comm, const RankBody& body) {
    RankContext ctx(options_of(given, env_, rank_, world_));
    Communicator ranks(ctx, transport_.make({ctx.backend(), mpi_.get(), rendezvous_, options(comm)}), comm);
    try {
      body(ctx, ranks);
      ranks.drain(ctx);
      ctx.synchronize();
      ranks.barrier(ctx, "end of the run");
    } catch (const Error& e) {
      if (status_page_)
        status_page_->fail(e);  // now, and not after MPI's leave: the launcher asks who has noticed
      ranks.abort(e.what());
      throw;
    } catch (const std::exception& e) {
      ranks.abort(e.what());
      throw;
    }
  }

  void finish() {
    if (mpi_) mpi_->finish();
    if (status_page_) status_page_->finish();
  }

 private:
  void check_world(const RanksRequest& request) const {
    if (mpi_ && env_.launched() && (rank_ != env_.rank || world_ != env_.world))
      throw Error(cat(env_.source, " says rank ", env_.rank, " of ", env_.world, ", MPI says rank ", rank_,
                      " of ", world_),
                  "the launcher and the MPI library kiln was built with must match: use the mpirun "
                  "of that MPI");
    if (request.world > 0 && request.world != world_)
      throw Error(
          cat(request.world, " ranks were requested, ", world_, world_ == 1 ? " was" : " were", " started"),
          cat("use `kiln run --nproc ", request.world, " --transport ", request.transport, " -- COMMAND`"),
          ErrorKind::usage);
  }

  MpiOptions options(const CommOptions& comm) const {
    MpiOptions o;
    o.comm = comm;
    o.reduction = reduction_;
    if (status_page_) {
      o.watch = [status_page = status_page_.get()](const CommCall* call) {
        call == nullptr ? status_page->leave() : status_page->enter(call->text());
      };
    }
    return o;
  }

  const TransportRow& transport_;
  ReductionOrder reduction_;
  RankEnv env_;
  std::unique_ptr<RankStatusPage> status_page_;
  std::unique_ptr<MpiProcess> mpi_;
  std::unique_ptr<NcclRendezvous> rendezvous_;
  int rank_ = 0, world_ = 1;
};

Ranks::Ranks(const RanksRequest& request) : request_(request) {
  if (!find_transport(request.transport).processes) return;
  process_ = std::make_unique<Process>(request);
}

Ranks::~Ranks() = default;

void Ranks::run(const RankOptions& options, const CommOptions& comm, const RankBody& body) {
  if (process_) return process_->run(options, comm, body);
  RankOptions each = options;
  const int world = std::max(1, request_.world);
  if (world == 1) return run_alone(comm, each, body);
  if (each.threads == 0) each.threads = std::max(1, read_host_limits().cpus_usable / world);
  run_thread_ranks(world, each, body, comm);
}

void Ranks::finish() {
  if (process_) process_->finish();
}

void run_ranks(const RanksRequest& request, const RankOptions& options, const RankBody& body) {
  const FlightFolder flight(request.comm.flight_folder);
  Ranks ranks(request);
  ranks.run(options, request.comm, body);
  ranks.finish();
}

}  // namespace kiln
