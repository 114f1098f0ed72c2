include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/farad)
install(TARGETS farad EXPORT farad ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/farad DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library
  FILES_MATCHING PATTERN *.h)
install(FILES ${PROJECT_BINARY_DIR}/include/farad/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/farad COMPONENT library)
install(EXPORT farad NAMESPACE farad:: FILE faradTargets.cmake DESTINATION ${package_dir} COMPONENT library)

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/faradConfig.cmake.in ${PROJECT_BINARY_DIR}/faradConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/faradConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/faradConfig.cmake ${PROJECT_BINARY_DIR}/faradConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/FaradTorch.cmake DESTINATION ${package_dir} COMPONENT library)
