// One NCCL communicator: its errors are one line each, and its calls are aborted after the time-out.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "dist/comm/nccl/load_nccl.h"

namespace kiln {

class NcclComm {
 public:
  NcclComm(int world, int rank, const ncclUniqueId& id, std::chrono::milliseconds timeout);
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  // Of `world` ranks; null without a colour.
  std::unique_ptr<NcclComm> split(int color, int key, int world);

  // Makes `call` on the communicator and waits until NCCL has taken it on. Throws Error(title, NCCL's own
  // words). An abort from another thread comes before or after `call`, never during it: what is aborted is
  // freed.
  template <class Call>
  void run(const std::string& title, Call call) {
    std::unique_lock lock(mutex_);
    finish(lock, aborted_ ? ncclInvalidUsage : call(comm_), title);
  }
  // What has gone wrong since, on the device or at another rank; empty: nothing.
  std::string trouble();
  void abort();  // ends what is in flight on the device; from any thread

 private:
  explicit NcclComm(std::chrono::milliseconds timeout) : nccl_(load_nccl()), timeout_(timeout) {}
  // Both with the mutex held; finish() lets go of it while it waits.
  void finish(std::unique_lock<std::mutex>& lock, ncclResult_t result, const std::string& title);
  std::string words(ncclResult_t result) const;
  void abort_now();

  const Nccl& nccl_;
  std::chrono::milliseconds timeout_;
  ncclComm_t comm_ = nullptr;
  std::mutex mutex_;
  bool aborted_ = false;
};

}  // namespace kiln
