// A rendezvous of ranks over TCP, for launchers without MPI: rank 0 listens, the others connect, and texts
// are gathered and distributed. Frames are short and capped; a stranger is rejected at its first bytes.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace kiln {

struct TcpRendezvousOptions {
  std::string address = "127.0.0.1";  // rank 0 binds it, the others go there
  int port = 0;                       // 0: for rank 0 of tests alone, any free one
  int rank = 0, world = 1;
  std::string token;  // of this job: others on the machine have another
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
};

class TcpRendezvous {
 public:
  virtual ~TcpRendezvous() = default;
  virtual int port() const = 0;
  virtual void rendezvous() = 0;  // all come; rank 0 has listened since it was made
  virtual std::vector<std::string> exchange(const std::string& mine) = 0;
};

// Throws Error in one line: the port is in use, the address is not this machine's, a rank is late or missing
// (named), or the peer is of another job or version.
std::unique_ptr<TcpRendezvous> open_tcp_rendezvous(const TcpRendezvousOptions& options);

}  // namespace kiln
