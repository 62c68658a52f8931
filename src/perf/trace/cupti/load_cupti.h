// CUPTI's functions, loaded when first requested: a machine without the library runs everything but what
// needs it.
#pragma once

#include <cupti.h>

#include <string>

namespace kiln {

struct Cupti {
  std::string why_not;  // empty: loaded

  decltype(&cuptiGetVersion) get_version = nullptr;
  decltype(&cuptiGetResultString) get_result_string = nullptr;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&cuptiActivityGetNextRecord) get_next_record = nullptr;
  decltype(&cuptiActivityGetNumDroppedRecords) get_num_dropped = nullptr;
  decltype(&cuptiGetTimestamp) get_timestamp = nullptr;
  decltype(&cuptiGetCallbackName) get_callback_name = nullptr;
};

const Cupti& load_cupti();  // the same one every time

}  // namespace kiln
