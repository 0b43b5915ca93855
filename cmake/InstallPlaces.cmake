# Runs when Remora is installed, once for each component in PLACES_OF: writes the files in which the
# places of others stand. A configuration that is there is the administrator's, and stays.

set(BINDIR ${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR})
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(SYSCONFDIR /etc)
else()
  set(SYSCONFDIR ${CMAKE_INSTALL_PREFIX}/etc)
endif()
set(made ${CMAKE_BINARY_DIR}/installed)

if(PLACES_OF STREQUAL "development")
  foreach(name remora remora-server)
    configure_file(${CMAKE_SOURCE_DIR}/cmake/${name}.pc.in ${made}/${name}.pc @ONLY)
    file(INSTALL ${made}/${name}.pc
      DESTINATION ${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  endforeach()
  return()
endif()

configure_file(${CMAKE_SOURCE_DIR}/packaging/kv-server.service.in ${made}/kv-server.service @ONLY)
file(INSTALL ${made}/kv-server.service DESTINATION ${CMAKE_INSTALL_PREFIX}/lib/systemd/system)

if(EXISTS "$ENV{DESTDIR}${SYSCONFDIR}/remora/kv-server.conf")
  message(STATUS "Kept as it is: ${SYSCONFDIR}/remora/kv-server.conf")
else()
  file(INSTALL ${CMAKE_SOURCE_DIR}/packaging/kv-server.conf DESTINATION ${SYSCONFDIR}/remora)
endif()
