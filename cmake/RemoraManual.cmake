# The manual pages of the public headers: made from their text by scripts/man-from-header into
# build/man/man3, where `man -M build/man` finds them. Without python3 there are none, and the rest
# works.

find_package(Python3 COMPONENTS Interpreter QUIET)
if(Python3_Interpreter_FOUND)
  file(GLOB headers CONFIGURE_DEPENDS
    ${CMAKE_SOURCE_DIR}/include/remora/*.h ${CMAKE_SOURCE_DIR}/include/remora/compat/*.h)
  set(maker ${CMAKE_SOURCE_DIR}/scripts/man-from-header)
  add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/man/man3/made
    COMMAND ${Python3_EXECUTABLE} ${maker} --output ${CMAKE_BINARY_DIR}/man/man3 ${headers}
    COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_BINARY_DIR}/man/man3/made
    DEPENDS ${headers} ${maker} COMMENT "manual pages of the headers" VERBATIM)
  add_custom_target(manual ALL DEPENDS ${CMAKE_BINARY_DIR}/man/man3/made)
  install(DIRECTORY ${CMAKE_BINARY_DIR}/man/man3/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man3
    COMPONENT development
    FILES_MATCHING PATTERN "*.3")
else()
  message(STATUS "manual pages of the headers: no (python3 is missing)")
endif()
