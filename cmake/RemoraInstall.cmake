# What `make install` puts where: the shared libraries, public headers, pkg-config files, completion
# of bash, man pages, the service's unit and its options. Programs are installed by
# remora_program(). The archive stays private: its symbols have no prefix.

install(TARGETS remora remora-server LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/remora DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")

# bash looks for the completion of a program in a file of its name.
foreach(program kv-server kv-client kv-bench kv-doctor)
  install(FILES ${CMAKE_SOURCE_DIR}/tools/completion/kv-tools.bash
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ${program})
endforeach()

foreach(section 1 3 5 7)
  file(GLOB pages CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/docs/man/*.${section})
  if(pages)
    install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
  endif()
endforeach()
# For clients by gRPC, whatever their language.
install(FILES ${CMAKE_SOURCE_DIR}/proto/kv_cache.proto DESTINATION ${CMAKE_INSTALL_DATADIR}/remora)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/remora
  RENAME copyright)
install(FILES ${CMAKE_SOURCE_DIR}/packaging/kv-server.conf
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/remora/examples)

# These name other places, which depend on the prefix; and that is known for sure only when it is
# done: `cpack` installs to another one than `make install`.
foreach(variable CMAKE_SOURCE_DIR CMAKE_BINARY_DIR CMAKE_INSTALL_BINDIR CMAKE_INSTALL_LIBDIR
    CMAKE_INSTALL_INCLUDEDIR PROJECT_VERSION PROJECT_DESCRIPTION)
  install(CODE "set(${variable} \"${${variable}}\")")
endforeach()
install(SCRIPT ${CMAKE_SOURCE_DIR}/cmake/InstallPlaces.cmake)
