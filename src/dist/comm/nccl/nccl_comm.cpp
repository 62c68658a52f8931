#include "dist/comm/nccl/nccl_comm.h"

#include <atomic>
#include <thread>

#include "base/error.h"

namespace kiln {
namespace {

// Where there are others to wait for, calls return at once and can be given up. NCCL starts a thread for each
// of those; alone it need not.
ncclConfig_t config_for(int world) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = world == 1 ? 1 : 0;
  return config;
}

}  // namespace

NcclComm::NcclComm(int world, int rank, const ncclUniqueId& id, std::chrono::milliseconds timeout)
    : NcclComm(timeout) {
  ncclConfig_t config = config_for(world);
  std::unique_lock lock(mutex_);
  finish(lock, nccl_.init_rank(&comm_, world, id, rank, &config), "nccl init");
}

NcclComm::~NcclComm() {
  const std::lock_guard lock(mutex_);
  if (comm_ != nullptr && !aborted_) nccl_.destroy(comm_);
}

std::unique_ptr<NcclComm> NcclComm::split(int color, int key, int world) {
  std::unique_ptr<NcclComm> part(new NcclComm(timeout_));
  ncclConfig_t config = config_for(world);
  run("split", [&](ncclComm_t comm) {
    return nccl_.split(comm, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &part->comm_, &config);
  });
  if (color < 0) return nullptr;
  // The new one is put into its place by a thread of NCCL's, which may be after the old one says it is done.
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  while (std::atomic_ref<ncclComm_t>(part->comm_).load() == nullptr) {
    if (std::chrono::steady_clock::now() > deadline)
      throw Error(cat("[split] NCCL made no group in ", timeout_.count(), " ms"),
                  "NCCL_DEBUG=INFO says what NCCL does");
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  part->run("split", [](ncclComm_t) { return ncclInProgress; });
  return part;
}

std::string NcclComm::words(ncclResult_t result) const {
  std::string text = nccl_.error_string(result);
  const char* const last = nccl_.last_error(comm_);
  if (last != nullptr && *last != '\0') text += cat(": ", last);
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text;
}

void NcclComm::finish(std::unique_lock<std::mutex>& lock, ncclResult_t result, const std::string& title) {
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  while (result == ncclInProgress && !aborted_) {
    if (nccl_.async_error(comm_, &result) != ncclSuccess) break;
    if (result != ncclInProgress) break;
    if (std::chrono::steady_clock::now() > deadline) {
      abort_now();
      throw Error(cat("[", title, "] NCCL waited ", timeout_.count(), " ms for the other ranks"),
                  "see what the other ranks are doing; NCCL_DEBUG=INFO says what NCCL does");
    }
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    lock.lock();
  }
  if (aborted_) throw Error(cat("[", title, "] NCCL: the communicator was aborted"));
  if (result == ncclSuccess) return;
  throw Error(cat("[", title, "] NCCL: ", words(result)), "NCCL_DEBUG=INFO says what NCCL does");
}

std::string NcclComm::trouble() {
  ncclResult_t state = ncclSuccess;
  const std::lock_guard lock(mutex_);
  if (aborted_) return "it was aborted";
  const ncclResult_t asked = nccl_.async_error(comm_, &state);
  if (asked != ncclSuccess) return words(asked);
  return state == ncclSuccess || state == ncclInProgress ? "" : words(state);
}

void NcclComm::abort() {
  const std::lock_guard lock(mutex_);
  abort_now();
}

void NcclComm::abort_now() {
  if (!aborted_ && comm_ != nullptr) nccl_.abort(comm_);
  aborted_ = true;
}

}  // namespace kiln
