// Has the device passed an event? On the CPU work is done when its call returns.
#pragma once

#include "device/backend.h"

namespace kiln {

bool event_passed(Backend& backend, Event event);

}  // namespace kiln
