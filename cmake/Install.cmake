# What `make install` puts where. The C library is what others build against; the preload library is private to
# residctl, hence in a folder of its own, where no linker and no loader finds it by accident.

include(CMakePackageConfigHelpers)
set(resid_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/resid)

if(TARGET residctl)
  install(TARGETS residctl RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
endif()
if(TARGET resid_preload)
  install(TARGETS resid_preload LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/residctl COMPONENT program)
endif()

if(TARGET resid_backend)
  install(TARGETS resid_backend LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/residctl COMPONENT program)
endif()

if(TARGET resid_shared)
  set_target_properties(resid_shared PROPERTIES EXPORT_NAME resid)
  add_library(resid::resid ALIAS resid_shared)
  install(TARGETS resid_shared EXPORT residTargets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development
          INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/resid DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
          FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
  install(EXPORT residTargets NAMESPACE resid:: DESTINATION ${resid_package_dir} COMPONENT development)

  configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/residConfig.cmake.in ${PROJECT_BINARY_DIR}/residConfig.cmake
                                INSTALL_DESTINATION ${resid_package_dir})
  # Below 1.0 a minor release may change the interface.
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/residConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/residConfig.cmake ${PROJECT_BINARY_DIR}/residConfigVersion.cmake
          DESTINATION ${resid_package_dir} COMPONENT development)

  # Relative to the file itself, so that an installed tree can be moved, and `cmake --install --prefix` is right.
  file(RELATIVE_PATH resid_pc_prefix /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
  string(REGEX REPLACE "/$" "" resid_pc_prefix ${resid_pc_prefix})
  configure_file(${CMAKE_CURRENT_LIST_DIR}/resid.pc.in ${PROJECT_BINARY_DIR}/resid.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/resid.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endif()

file(GLOB resid_manuals ${PROJECT_SOURCE_DIR}/docs/man/*.1)
if(resid_manuals)
  install(FILES ${resid_manuals} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
endif()
if(EXISTS ${PROJECT_SOURCE_DIR}/tools/completions/residctl.bash)
  install(FILES ${PROJECT_SOURCE_DIR}/tools/completions/residctl.bash RENAME residctl
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT program)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
