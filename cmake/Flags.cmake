# Language level, optimisation and warnings, carried by the interface target syrtos_flags.
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
# -O3 by hand: CMake's default Release flags differ between versions.
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")

find_program(SYRTOS_CCACHE ccache)
if(SYRTOS_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${SYRTOS_CCACHE}")
endif()

# Reductions must give the same bits everywhere: no -ffast-math, no fused multiply-add, no
# -march=native. -fno-math-errno changes no result and lets loops vectorise.
add_library(syrtos_flags INTERFACE)
target_compile_options(syrtos_flags INTERFACE
  -fno-math-errno -ffp-contract=off -fno-semantic-interposition
  -Wall -Wextra -Wswitch-enum -Werror)
