# Where libraries are installed. Debian has a directory for each processor (multiarch), below /usr
# and below /usr/local. GNUInstallDirs takes it only if the prefix was /usr when the build was first
# configured; here it is taken in every build, so that `make install` and the packages agree.
# What names no component belongs to the package of the programs.

if(NOT DEFINED CMAKE_INSTALL_LIBDIR AND EXISTS /etc/debian_version)
  execute_process(COMMAND ${CMAKE_C_COMPILER} -print-multiarch OUTPUT_VARIABLE multiarch
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT multiarch)
    set(multiarch ${CMAKE_LIBRARY_ARCHITECTURE})
  endif()
  if(multiarch)
    set(CMAKE_INSTALL_LIBDIR lib/${multiarch} CACHE PATH "where libraries are installed")
  endif()
endif()
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME programs)
