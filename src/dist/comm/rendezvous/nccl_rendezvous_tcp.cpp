#include <cstdlib>

#include "base/error.h"
#include "base/on_exit.h"
#include "dist/comm/nccl_transport.h"
#include "dist/comm/rendezvous/tcp_store.h"

namespace kiln {
namespace {

// Every call is sent to all ranks and compared by each. Parcels concern two ranks only, and are not checked.
class TcpRollCall final : public Transport {
 public:
  TcpRollCall(std::shared_ptr<TcpRendezvous> rendezvous, int rank, int world, const MpiOptions& options)
      : rendezvous_(std::move(rendezvous)), options_(options), rank_(rank), world_(world) {}
  std::string_view name() const override { return "tcp"; }
  int rank() const override { return rank_; }
  int world() const override { return world_; }
  void run(const CommCall& call, Stream) override {
    if (options_.watch) options_.watch(&call);
    const OnExit over([&] {
      if (options_.watch) options_.watch(nullptr);
    });
    if (call.what == Collective::send || call.what == Collective::recv || call.what == Collective::send_recv)
      return;
    const std::vector<std::string> all = rendezvous_->exchange(call.text());
    for (std::size_t r = 1; r < all.size(); ++r) {
      if (all[r] != all[0])
        throw Error(cat("ranks disagree: rank 0 calls ", all[0], ", rank ", r, " calls ", all[r]),
                    "every rank must call the same collectives in the same order");
    }
  }
  std::unique_ptr<Transport> split(int, int) override { return nullptr; }  // its groups go unmet
  void abort(const std::string&) override {}  // the process ends, and its connection with it

 private:
  std::shared_ptr<TcpRendezvous> rendezvous_;
  MpiOptions options_;
  int rank_, world_;
};

class TcpNcclMeeting final : public NcclRendezvous {
 public:
  TcpNcclMeeting(const RankEnv& env, const CommOptions& options) : env_(env) {
    TcpRendezvousOptions o;
    if (!env.master_address.empty()) o.address = env.master_address;
    o.port = env.master_port;
    o.rank = env.rank;
    o.world = env.world;
    o.timeout = options.timeout;
    if (const char* const job = std::getenv("KILN_JOB")) o.token = job;
    if (const char* const job = std::getenv("TORCHELASTIC_RUN_ID"); job != nullptr && o.token.empty())
      o.token = job;
    if (o.port == 0)
      throw Error("no rendezvous address: MASTER_PORT is not set",
                  "torchrun sets MASTER_ADDR and MASTER_PORT; `kiln run --transport nccl` needs neither");
    rendezvous_ = open_tcp_rendezvous(o);
    rendezvous_->rendezvous();
  }

  int rank() const override { return env_.rank; }
  int world() const override { return env_.world; }
  int local_rank() const override { return env_.local_rank; }
  std::vector<std::string> exchange(const std::string& mine) override { return rendezvous_->exchange(mine); }
  std::unique_ptr<Transport> roll_call(Backend&, const MpiOptions& options) override {
    return std::make_unique<TcpRollCall>(rendezvous_, env_.rank, env_.world, options);
  }

 private:
  RankEnv env_;
  std::shared_ptr<TcpRendezvous> rendezvous_;
};

}  // namespace

std::unique_ptr<NcclRendezvous> rendezvous_over_tcp(const RankEnv& env, const CommOptions& options) {
  return std::make_unique<TcpNcclMeeting>(env, options);
}

}  // namespace kiln
