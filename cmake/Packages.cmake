# cpack: corefan and corefan-asyncio as Debian packages, and everything as one relocatable tarball.
#
#     cmake --preset release && cmake --build --preset release && (cd build/release && cpack -G "DEB;TGZ")
#
# cmake/finish_package.cmake brings the files into the form that Debian wants, and gives them one date, so that the same
# sources come to the same bytes.
set(CPACK_PACKAGE_NAME corefan)
set(CPACK_PACKAGE_VENDOR "The corefan authors")
set(CPACK_PACKAGE_CONTACT "The corefan authors <authors@corefan.example>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "distributed load driver for fan-outs of awaits")
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL corefan asyncio)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_PACKAGE_FILE_NAME corefan-${PROJECT_VERSION}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cmake/finish_package.cmake)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COREFAN_PACKAGE_NAME corefan)
set(CPACK_DEBIAN_COREFAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_COREFAN_PACKAGE_SUGGESTS corefan-asyncio)
set(CPACK_COMPONENT_COREFAN_DESCRIPTION
  "A coordinator sends sweeps to workers pinned to cores, which run fan-outs
of awaits in several ways (sequential, gather, task group) and return their
timings. The reports say what a fan-out costs in wall time and in CPU time,
and how many of them a core can carry.")
set(CPACK_DEBIAN_ASYNCIO_PACKAGE_NAME corefan-asyncio)
set(CPACK_DEBIAN_ASYNCIO_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_ASYNCIO_PACKAGE_DEPENDS
  "corefan (>= ${PROJECT_VERSION}), python3 (>= 3.11), python3-msgpack, python3-uvloop, python3-zmq")
set(CPACK_DEBIAN_ASYNCIO_PACKAGE_CONTROL_EXTRA
  ${CMAKE_SOURCE_DIR}/deploy/debian/postinst ${CMAKE_SOURCE_DIR}/deploy/debian/prerm)
set(CPACK_COMPONENT_ASYNCIO_DESCRIPTION
  "This package has the worker that runs the same fan-outs on Python's own
event loops, asyncio and uvloop, beside those of corefan-worker and in the
same report.")

foreach(component corefan asyncio)
  set(package corefan)
  if(component STREQUAL asyncio)
    set(package corefan-asyncio)
  endif()
  install(FILES deploy/debian/copyright DESTINATION share/doc/${package} COMPONENT ${component})
  install(FILES deploy/debian/changelog DESTINATION share/doc/${package} COMPONENT ${component})
endforeach()
include(CPack)
