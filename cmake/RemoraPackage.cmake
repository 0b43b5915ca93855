# `cpack -G DEB` in a build directory makes three packages of what `make install` installs, but for
# kv-bench's modules that compare with other stores, whose libraries the packages must not need:
#
#	remora		programs, their man pages, the service; needs neither of the others
#	libremora0	the shared libraries
#	libremora-dev	headers, pkg-config files, man pages of the functions, kv_cache.proto
#
# dpkg-shlibdeps finds what they depend on. The maintainer scripts only tell systemd: they start
# nothing and make no user; an upgrade restarts a service that runs.

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME remora)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "The Remora developers <remora@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "key-value store on RDMA, shared memory and TCP")
set(CPACK_COMPONENTS_ALL programs libraries development)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_COMPONENT_DEVELOPMENT_DEPENDS libraries)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)

set(CPACK_DEBIAN_PROGRAMS_PACKAGE_NAME remora)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SECTION database)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_RECOMMENDS ibverbs-providers)
set(CPACK_COMPONENT_PROGRAMS_DESCRIPTION
"A server that keeps keys and values in memory, its client, and programs
that measure and check them. Clients on the same host reach it through
shared memory, others through RDMA (verbs) or TCP.")
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_CONTROL_EXTRA
  ${CMAKE_SOURCE_DIR}/packaging/debian/conffiles
  ${CMAKE_SOURCE_DIR}/packaging/debian/postinst
  ${CMAKE_SOURCE_DIR}/packaging/debian/prerm
  ${CMAKE_SOURCE_DIR}/packaging/debian/postrm)

set(CPACK_DEBIAN_LIBRARIES_PACKAGE_NAME libremora0)
set(CPACK_DEBIAN_LIBRARIES_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARIES_PACKAGE_RECOMMENDS ibverbs-providers)
set(CPACK_COMPONENT_LIBRARIES_DESCRIPTION
"The shared libraries: what programs need that use the store, or the library for RDMA below it,
and what programs need that have the server inside.")
set(CPACK_DEBIAN_LIBRARIES_PACKAGE_CONTROL_EXTRA
  ${CMAKE_SOURCE_DIR}/packaging/debian/triggers)

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libremora-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
"For development: headers, pkg-config files and manual pages of the functions.")

set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_STRIP_FILES ON)
# With DESTDIR, so that /etc can be in it, too.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
include(CPack)
