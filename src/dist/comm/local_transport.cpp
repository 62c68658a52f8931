#include "dist/comm/local_transport.h"

#include "base/error.h"
#include "dist/comm/ring_transport.h"

namespace kiln {
namespace {

class AloneTransport final : public Transport {
 public:
  explicit AloneTransport(Backend& backend) : backend_(backend) {}
  std::string_view name() const override { return "alone"; }
  int rank() const override { return 0; }
  int world() const override { return 1; }
  bool is_local() const override { return true; }
  void run(const CommCall& call, Stream stream) override {
    if (call.in != call.out && call.in != nullptr && call.out != nullptr)
      backend_.copy_within(call.out, call.in, call.bytes().value, stream);
  }
  std::unique_ptr<Transport> split(int color, int) override {
    return color < 0 ? nullptr : make_alone_transport(backend_);
  }
  void abort(const std::string&) override {}

 private:
  Backend& backend_;
};

class MetaTransport final : public Transport {
 public:
  MetaTransport(int rank, int world, const CommOptions& options)
      : rank_(rank), world_(world), options_(options) {}
  std::string_view name() const override { return "threads"; }
  int rank() const override { return rank_; }
  int world() const override { return world_; }
  bool is_local() const override { return true; }
  Bytes scratch(const CommCall& call) const override {
    return options_.reduction_in_scratch ? deterministic_scratch(call, world_)
                                         : ring_scratch(options_.algorithm, call, world_);
  }
  void run(const CommCall&, Stream) override {}
  std::unique_ptr<Transport> split(int, int) override {
    throw Error("the meta device has no other ranks: how large a group of them would be cannot be known",
                "make a meta communicator of the group's size instead");
  }
  void abort(const std::string&) override {}

 private:
  int rank_, world_;
  CommOptions options_;
};

}  // namespace

std::unique_ptr<Transport> make_alone_transport(Backend& backend) {
  return std::make_unique<AloneTransport>(backend);
}

std::unique_ptr<Transport> make_meta_transport(int rank, int world, const CommOptions& options) {
  return std::make_unique<MetaTransport>(rank, world, options);
}

}  // namespace kiln
