# What `cmake --install` places: program, both libraries, header, pkg-config file, CMake package, manual pages
# and completions.

install(TARGETS churon_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${STATIC_LIBRARY} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/churon.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# Paths in both files are relative to where they lie, so that an installed tree can be moved.
file(RELATIVE_PATH up_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
list(JOIN PRIVATE_LIBS " " PRIVATE_LIBS_WORDS)
configure_file(cmake/churon.pc.in churon.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/churon.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

include(CMakePackageConfigHelpers)
set(PACKAGE_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/churon)
set(LIBRARY_FOLDER ${CMAKE_INSTALL_LIBDIR})
set(HEADER_FOLDER ${CMAKE_INSTALL_INCLUDEDIR})
configure_package_config_file(cmake/churonConfig.cmake.in churonConfig.cmake
  INSTALL_DESTINATION ${PACKAGE_FOLDER} PATH_VARS LIBRARY_FOLDER HEADER_FOLDER)
write_basic_package_version_file(churonConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/churonConfig.cmake ${CMAKE_BINARY_DIR}/churonConfigVersion.cmake
  DESTINATION ${PACKAGE_FOLDER})

if(CHURON_PROGRAM)
  install(TARGETS churon RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  file(GLOB MANUAL_PAGES CONFIGURE_DEPENDS docs/man/*.1)
  install(FILES ${MANUAL_PAGES} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES tools/completions/churon.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
    RENAME churon)
  install(FILES tools/completions/_churon DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
endif()
