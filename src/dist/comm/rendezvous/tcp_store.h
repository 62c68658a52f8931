// A meeting of ranks over TCP, for launchers that bring no MPI: rank 0 listens, the others come, and texts
// are gathered and handed round. Frames are short and capped; a stranger is turned away at its first words.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace kiln {

struct TcpMeetingOptions {
  std::string address = "127.0.0.1";  // rank 0 binds it, the others go there
  int port = 0;                       // 0: for rank 0 of tests alone, any free one
  int rank = 0, world = 1;
  std::string token;  // of this job: others on the machine have another
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
};

class TcpMeeting {
 public:
  virtual ~TcpMeeting() = default;
  virtual int port() const = 0;
  virtual void meet() = 0;  // all come; rank 0 has listened since it was made
  virtual std::vector<std::string> exchange(const std::string& mine) = 0;
};

// Throws Error in one line: the port is in use, the address is not this machine's, a rank is late or missing
// (named), or whoever answers is of another job or version.
std::unique_ptr<TcpMeeting> open_tcp_meeting(const TcpMeetingOptions& options);

}  // namespace kiln
