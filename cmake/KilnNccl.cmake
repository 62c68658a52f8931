# Finds nccl.h, or switches KILN_NCCL off: src/dist/comm/no_nccl.cpp then stands in. The library itself is loaded when
# it is first used, so that a program carried to a machine without it still starts.
if(KILN_NCCL AND KILN_CUDA)
  find_path(KILN_NCCL_HEADERS nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(NOT KILN_NCCL_HEADERS)
    message(STATUS "kiln: nccl.h was not found (apt install libnccl-dev); collectives between GPUs are left out")
    set(KILN_NCCL OFF)
  endif()
else()
  set(KILN_NCCL OFF)
endif()
