# Finds nvcc where PATH does not have it, fixes its host compiler, and enables CUDA.

if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(KILN_NVCC nvcc PATHS /usr/local/cuda/bin $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin)
  if(NOT KILN_NVCC)
    message(FATAL_ERROR "kiln: nvcc was not found on PATH or in /usr/local/cuda/bin. "
                        "Install the CUDA toolkit (13.0), or configure with -DKILN_CUDA=OFF.")
  endif()
  set(CMAKE_CUDA_COMPILER ${KILN_NVCC})
endif()

# g++ compiles the host half of .cu files even where clang compiles the rest: the toolkit supports few clangs.
if(NOT CMAKE_CUDA_HOST_COMPILER AND NOT DEFINED ENV{CUDAHOSTCXX})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  else()
    find_program(KILN_CUDA_HOST NAMES g++-13 g++-12 g++ REQUIRED)
    set(CMAKE_CUDA_HOST_COMPILER ${KILN_CUDA_HOST})
  endif()
endif()

set(CMAKE_CUDA_ARCHITECTURES ${KILN_CUDA_ARCHS})
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

# Kernel times for `kiln bench step --split`. Only the header is needed here: the library is loaded when it is used.
if(CUDAToolkit_CUPTI_INCLUDE_DIR)
  set(KILN_CUPTI ON)
else()
  message(STATUS "kiln: cupti.h was not found in the CUDA toolkit; kiln bench step --split is left out on GPUs")
endif()
