# The code for GPUs is a module, loaded only when a program uses a GPU: programs start without CUDA's libraries.
if(NOT LOCKSTEP_HAS_CUDA)
  return()
endif()
get_property(sources GLOBAL PROPERTY LOCKSTEP_CUDA_SOURCES)
add_library(lockstep_cuda MODULE ${sources})
target_link_libraries(lockstep_cuda PRIVATE base fmt::fmt OpenMP::OpenMP_CXX CUDA::cudart_static CUDA::cublasLt)
# CMake 3.25 cannot compile several CUDA sources as one.
set_target_properties(lockstep_cuda PROPERTIES UNITY_BUILD OFF)
target_compile_options(lockstep_cuda PRIVATE
  "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers;-Werror=all-warnings;-lineinfo>")
# Without a GPU only the tests of the build need the module.
if(LOCKSTEP_CUDA STREQUAL ON OR LOCKSTEP_HAS_GPU)
  add_dependencies(program lockstep_cuda)
endif()
