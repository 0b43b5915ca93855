# What `make install` puts where: the shared library, public headers, pkg-config file, completion of
# bash, and man pages.
# Programs are installed by remora_program(). The archive stays private: its symbols have no prefix.

install(TARGETS remora remora-server LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/remora DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")

configure_file(${CMAKE_SOURCE_DIR}/cmake/remora.pc.in ${CMAKE_BINARY_DIR}/remora.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/remora.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# bash looks for the completion of a program in a file of its name.
foreach(program kv-server kv-client kv-bench kv-doctor)
  install(FILES ${CMAKE_SOURCE_DIR}/tools/completion/kv-tools.bash
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ${program})
endforeach()

foreach(section 1 3 7)
  file(GLOB pages CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/docs/man/*.${section})
  if(pages)
    install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
  endif()
endforeach()
