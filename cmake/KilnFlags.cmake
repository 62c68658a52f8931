# kiln_flags: the compiler flags of everything we compile ourselves.
include(CheckPIESupported)

set(CMAKE_POSITION_INDEPENDENT_CODE ON)
check_pie_supported(LANGUAGES CXX)

add_library(kiln_flags INTERFACE)
# Not CMAKE_CXX_STANDARD: CMake hands it on to CUDA, and CMake 3.25 does not know that nvcc has C++20.
target_compile_options(kiln_flags INTERFACE -std=c++20)
target_compile_definitions(kiln_flags INTERFACE KILN_CUDA=$<BOOL:${KILN_CUDA}>)

# -ffp-contract=off: g++ would otherwise fuse a*b+c wherever the ISA of that file has fma, and the same sum would
# have other bits in the AVX2 file than in the plain one. Where we want an fma we write one.
set(host_flags -Wall -Wextra -ffp-contract=off)
if(KILN_WERROR)
  list(APPEND host_flags -Werror)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ 12 sees overruns in joined std::strings that are none (GCC bug 105651), or not, by how long the path of the
    # build folder is: a warning, but nothing that a build may stop at.
    list(APPEND host_flags -Wno-error=array-bounds -Wno-error=restrict -Wno-error=stringop-overflow)
  endif()
endif()

if(KILN_SANITIZE)
  list(APPEND host_flags -fsanitize=${KILN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(kiln_flags INTERFACE -fsanitize=${KILN_SANITIZE})
elseif(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  # Undefined first: Ubuntu's g++ already defines it. It needs optimisation, and sanitizers bring better checks.
  list(APPEND host_flags -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
endif()
if(KILN_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  list(APPEND host_flags -D_GLIBCXX_ASSERTIONS)
endif()
target_compile_options(kiln_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${host_flags}>")
target_link_options(kiln_flags INTERFACE LINKER:-z,relro,-z,now)

if(KILN_CUDA)
  list(JOIN host_flags "," host_flags_for_nvcc)
  set(nvcc_flags
      -Xcompiler=${host_flags_for_nvcc}
      --expt-relaxed-constexpr
      --threads=2  # the architectures of one file side by side
      -Xptxas=--warn-on-spills
      -Werror=default-stream-launch)  # every launch names its stream
  if(KILN_WERROR)
    # Not -Werror=all-warnings, which would also forbid every register spill; those are judged by their timing.
    list(APPEND nvcc_flags -Xcudafe=--promote_warnings)
  endif()
  target_compile_options(kiln_flags INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:${nvcc_flags}>")
endif()

# For code that is not felt when kiln runs: half the time to compile.
function(kiln_compile_fast target)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
  endif()
endfunction()

# Headers that most files of a target read, compiled once. Where a compiler cache is used it does more, and would not
# see through them; a build with one also proves that every file includes what it uses.
function(kiln_precompile target)
  if(CMAKE_CXX_COMPILER_LAUNCHER OR KILN_FUZZ)
    return()
  endif()
  list(TRANSFORM ARGN REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:\\1>" OUTPUT_VARIABLE headers)
  target_precompile_headers(${target} PRIVATE ${headers})
endfunction()

# The files of a folder in lots of up to eight, each compiled as one: what they all include is read once. Names inside
# anonymous namespaces must differ within a folder. Files with flags of their own stay alone. Not in a build whose
# commands a tool reads file by file, nor with a compiler cache, which is better off with single files. `alone`: a
# pattern of paths that are left out, such as tables, whose columns all go by the same names.
function(kiln_compile_together target alone)
  if(NOT KILN_TOGETHER OR CMAKE_CXX_COMPILER_LAUNCHER OR KILN_FUZZ)
    return()
  endif()
  set(folder "")
  set(lot 0)
  set(count 0)
  get_target_property(sources ${target} SOURCES)
  list(SORT sources)
  foreach(source IN LISTS sources)
    if(NOT source MATCHES "[.]cpp$" OR source MATCHES "${alone}")
      continue()
    endif()
    get_filename_component(here ${source} DIRECTORY)
    if(NOT here STREQUAL folder OR count EQUAL 8)
      math(EXPR lot "${lot} + 1")
      set(folder ${here})
      set(count 0)
    endif()
    math(EXPR count "${count} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP lot${lot})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
