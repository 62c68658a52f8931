# make install: the program, and what it writes of itself: its manual page and the completions of three shells.
# Where the library is built (KILN_SHARED): that too, its C header, and its CMake and pkg-config packages.
set(reference ${CMAKE_BINARY_DIR}/reference)
set(pages)
function(kiln_reference_page file)  # ARGN: the words kiln is given
  add_custom_command(
    OUTPUT ${reference}/${file}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${reference}
    COMMAND kiln ${ARGN} > ${reference}/${file}.part
    COMMAND ${CMAKE_COMMAND} -E rename ${reference}/${file}.part ${reference}/${file}
    DEPENDS kiln
    COMMENT "Writing ${file}" VERBATIM)
  set(pages ${pages} ${reference}/${file} PARENT_SCOPE)
endfunction()
kiln_reference_page(kiln.1 man)
kiln_reference_page(kiln.bash completions bash)
kiln_reference_page(_kiln completions zsh)
kiln_reference_page(kiln.fish completions fish)
add_custom_target(kiln_reference ALL DEPENDS ${pages})

install(TARGETS kiln RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${reference}/kiln.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${reference}/kiln.bash
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME kiln)
install(FILES ${reference}/_kiln DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${reference}/kiln.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# A header or a package of a library that nobody installed would only fail later.
if(KILN_SHARED)
  install(FILES ${CMAKE_SOURCE_DIR}/include/kiln/attention.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kiln)
  install(TARGETS kiln_shared EXPORT kilnTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/kiln)
  install(EXPORT kilnTargets NAMESPACE kiln:: DESTINATION ${package})
  include(CMakePackageConfigHelpers)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/package/kilnConfig.cmake @ONLY CONTENT [[
# find_package(kiln) gives kiln::kiln: libkiln.so and its header, kiln/attention.h.
include(${CMAKE_CURRENT_LIST_DIR}/kilnTargets.cmake)
]])
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/kilnConfigVersion.cmake
    VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
  # From where the file lies, so that an installed tree can be moved.
  file(RELATIVE_PATH KILN_PREFIX_FROM_PC /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/package/kiln.pc @ONLY CONTENT [[
prefix=${pcfiledir}/@KILN_PREFIX_FROM_PC@
libdir=${prefix}/@CMAKE_INSTALL_LIBDIR@
includedir=${prefix}/@CMAKE_INSTALL_INCLUDEDIR@

Name: kiln
Description: attention forward and backward on raw pointers and a CUDA stream
Version: @PROJECT_VERSION@
Libs: -L${libdir} -lkiln
Cflags: -I${includedir}
]])
  install(FILES ${CMAKE_BINARY_DIR}/package/kilnConfig.cmake ${CMAKE_BINARY_DIR}/package/kilnConfigVersion.cmake
    DESTINATION ${package})
  install(FILES ${CMAKE_BINARY_DIR}/package/kiln.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
