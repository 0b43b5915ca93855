# What `make install` puts where: the shared libraries, public headers, pkg-config files, completion
# of bash, man pages, documents, the service's unit and its options. Programs are installed by
# remora_program(). The archive stays private: its symbols have no prefix. The components `programs`
# (what names none), `libraries` and `development` become a package each: see RemoraPackage.cmake.

install(TARGETS remora remora-server LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  COMPONENT libraries NAMELINK_COMPONENT development)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/remora DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  COMPONENT development FILES_MATCHING PATTERN "*.h")

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
install(FILES ${CMAKE_SOURCE_DIR}/proto/kv_cache.proto DESTINATION ${CMAKE_INSTALL_DATADIR}/remora
  COMPONENT development)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/remora
  RENAME copyright)
foreach(package libremora0:libraries libremora-dev:development)
  string(REPLACE ":" ";" package ${package})
  list(GET package 0 name)
  list(GET package 1 component)
  install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name}
    RENAME copyright COMPONENT ${component})
endforeach()
# Documents that messages and man pages name, below each other as in the tree: links stay right.
install(FILES ${CMAKE_SOURCE_DIR}/SECURITY.md ${CMAKE_SOURCE_DIR}/CHANGELOG.md
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/remora)
install(FILES ${CMAKE_SOURCE_DIR}/docs/providers.md ${CMAKE_SOURCE_DIR}/docs/protocol.md
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/remora/docs)
install(FILES ${CMAKE_SOURCE_DIR}/packaging/kv-server.conf
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/remora/examples)

# These name other places, which depend on the prefix; and that is known for sure only when it is
# done: `cpack` installs to another one than `make install`.
foreach(component programs development)
  foreach(variable CMAKE_SOURCE_DIR CMAKE_BINARY_DIR CMAKE_INSTALL_BINDIR CMAKE_INSTALL_LIBDIR
      CMAKE_INSTALL_INCLUDEDIR PROJECT_VERSION PROJECT_DESCRIPTION)
    install(CODE "set(${variable} \"${${variable}}\")" COMPONENT ${component})
  endforeach()
  install(CODE "set(PLACES_OF ${component})" COMPONENT ${component})
  install(SCRIPT ${CMAKE_SOURCE_DIR}/cmake/InstallPlaces.cmake COMPONENT ${component})
endforeach()
