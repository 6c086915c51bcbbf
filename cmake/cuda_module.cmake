# What runs on GPUs, as a module that is loaded when a program asks for one: programs start without CUDA's libraries.
if(NOT LOCKSTEP_HAS_CUDA)
  return()
endif()
get_property(sources GLOBAL PROPERTY LOCKSTEP_CUDA_SOURCES)
add_library(lockstep_cuda MODULE ${sources})
target_link_libraries(lockstep_cuda PRIVATE base fmt::fmt CUDA::cudart_static CUDA::cublasLt)
target_compile_options(lockstep_cuda PRIVATE
  "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers;-Werror=all-warnings;-lineinfo>")
