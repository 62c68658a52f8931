#include "dist/comm/mpi_process.h"

#include <array>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "device/cpu/host_limits.h"
#include "dist/comm/mpi/mpi_transport.h"

namespace kiln {
namespace {

class RealMpiProcess final : public MpiProcess {
 public:
  RealMpiProcess() {
    int begun = 0;
    MPI_Initialized(&begun);
    if (begun != 0) throw Error("MPI has been started in this process before");
    int level = MPI_THREAD_SINGLE;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &world_);
    if (level < MPI_THREAD_MULTIPLE)  // every communicator's thread makes its own calls
      throw Error("this MPI does not let several threads call it at once", "use Open MPI 4 or newer",
                  ErrorKind::unavailable);
    alarm_ = std::make_shared<MpiAlarm>(MPI_COMM_WORLD, ranks_here() > read_host_limits().cpus_usable);
  }

  // After a failure the others may be gone, and MPI_Finalize would wait for them: the process ends without
  // it, and mpirun ends the ranks that are left. A moment first, so that their own errors are reported and
  // written.
  ~RealMpiProcess() override {
    if (!finished_ && world_ > 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }

  int rank() const override { return rank_; }
  int world() const override { return world_; }

  std::unique_ptr<Transport> transport(Backend& backend, const MpiOptions& options) override {
    return std::make_unique<MpiTransport>(copy_of_world(), alarm_, backend, options);
  }

  std::vector<std::string> exchange(const std::string& mine, const MpiOptions& options) override {
    using Slot = std::array<char, 4096>;
    if (mine.size() >= sizeof(Slot)) throw Error(cat("a text of ", mine.size(), " bytes to exchange"));
    Slot slot{};
    std::memcpy(slot.data(), mine.data(), mine.size());
    std::vector<Slot> all(static_cast<std::size_t>(world_));
    MpiGroup group(copy_of_world(), *alarm_, options);
    group.gather_small(slot.data(), all.data(), sizeof slot, "exchange");
    std::vector<std::string> texts;
    texts.reserve(all.size());
    for (const Slot& s : all) texts.emplace_back(s.data());
    return texts;
  }

  void finish() override {
    finished_ = true;
    check_mpi(MPI_Finalize(), "MPI_Finalize");
  }

 private:
  static int ranks_here() {
    MPI_Comm machine = MPI_COMM_NULL;
    int ranks = 1;
    check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine),
              "MPI_Comm_split_type");
    MPI_Comm_size(machine, &ranks);
    MPI_Comm_free(&machine);
    return ranks;
  }

  static MPI_Comm copy_of_world() {
    MPI_Comm copy = MPI_COMM_NULL;
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "MPI_Comm_dup");
    return copy;
  }

  int rank_ = 0, world_ = 1;
  bool finished_ = false;
  std::shared_ptr<MpiAlarm> alarm_;
};

}  // namespace

bool mpi_built_in() { return true; }

std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string all(text.data(), static_cast<std::size_t>(length));
  return all.substr(0, all.find(','));
}

std::unique_ptr<MpiProcess> start_mpi() { return std::make_unique<RealMpiProcess>(); }

}  // namespace kiln
