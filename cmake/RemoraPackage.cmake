# `cpack -G DEB` in a build directory makes one package, remora_VERSION_ARCH.deb, of what
# `make install` installs, but for kv-bench's modules that compare with other stores: nobody should
# need the libraries of those. dpkg-shlibdeps finds what it depends on. The maintainer scripts only
# tell systemd; they start nothing and make no user.

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME remora)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "The Remora developers <remora@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "key-value store on RDMA, shared memory and TCP")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"A server that keeps keys and values in memory, and its clients: programs
and a library in C. Clients on the same host reach it through shared memory,
others through RDMA (verbs) or TCP. Also the library for RDMA that it stands
on, and programs that measure both.")
set(CPACK_PACKAGE_FILE_NAME "remora_${PROJECT_VERSION}")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION database)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ibverbs-providers)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
  ${CMAKE_SOURCE_DIR}/packaging/debian/conffiles
  ${CMAKE_SOURCE_DIR}/packaging/debian/postinst
  ${CMAKE_SOURCE_DIR}/packaging/debian/prerm
  ${CMAKE_SOURCE_DIR}/packaging/debian/postrm
  ${CMAKE_SOURCE_DIR}/packaging/debian/triggers)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_STRIP_FILES ON)
# With DESTDIR, so that /etc can be in it, too.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_MONOLITHIC_INSTALL ON)
# What names no component of its own, and so not `compare`.
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};remora;Unspecified;/")
include(CPack)
