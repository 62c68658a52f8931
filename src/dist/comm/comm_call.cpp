#include "dist/comm/comm_call.h"

#include "base/error.h"

namespace kiln {

std::string_view name_of(Collective c) {
  switch (c) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::all_gather:
      return "all_gather";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::reduce:
      return "reduce";
    case Collective::broadcast:
      return "broadcast";
    case Collective::send:
      return "send";
    case Collective::recv:
      return "recv";
    case Collective::send_recv:
      return "send_recv";
    case Collective::barrier:
      return "barrier";
  }
  return "?";
}

bool adds_up(Collective c) {
  return c == Collective::all_reduce || c == Collective::reduce_scatter || c == Collective::reduce;
}

Bytes deterministic_scratch(const CommCall& call, int world) {
  const auto part = static_cast<std::size_t>((call.count + world - 1) / world);
  return {adds_up(call.what) ? part * size_of(call.dtype) * static_cast<std::size_t>(world - 1) : 0};
}

std::string CommCall::text() const {
  std::string s(name_of(what));
  if (what == Collective::broadcast || what == Collective::recv) s += cat(" from rank ", peer);
  if (what == Collective::send || what == Collective::send_recv || what == Collective::reduce)
    s += cat(" to rank ", peer);
  if (what == Collective::send_recv) s += cat(" and from rank ", source);
  if (what != Collective::barrier) s += cat(" of ", count, " ", name_of(dtype));
  if (!subject.empty()) s += cat(" (", subject, ")");
  return s;
}

}  // namespace kiln
