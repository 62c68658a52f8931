// A record of allocations as a snapshot that pytorch.org/memory_viz and torch.cuda._memory_viz read: pickle
// (every version of the viewer) or JSON (new ones).
#pragma once

#include "base/text_sink.h"
#include "perf/memory/memory_trace.h"

namespace kiln {

void write_snapshot_pickle(const MemoryRecord& record, const TextSink& sink);
void write_snapshot_json(const MemoryRecord& record, const TextSink& sink);

}  // namespace kiln
