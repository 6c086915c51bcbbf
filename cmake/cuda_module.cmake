# The code for GPUs is a module, loaded only when a program uses a GPU: programs start without CUDA's libraries.
if(NOT LOCKSTEP_HAS_CUDA)
  return()
endif()
get_property(sources GLOBAL PROPERTY LOCKSTEP_CUDA_SOURCES)
add_library(lockstep_cuda MODULE ${sources})
target_link_libraries(lockstep_cuda PRIVATE base fmt::fmt CUDA::cudart_static CUDA::cublasLt)
target_compile_options(lockstep_cuda PRIVATE
  "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers;-Werror=all-warnings;-lineinfo>")
