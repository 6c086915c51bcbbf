#include "parallel/tags/tag.h"

namespace lockstep {

std::string_view name_of(Along along) {
  switch (along) {
    case Along::nothing:
      return "unknown";
    case Along::replicated:
      return "replicated";
    case Along::rows:
      return "varying by rows";
    case Along::columns:
      return "varying by columns";
    case Along::partial:
      return "partial";
  }
  return "";
}

}  // namespace lockstep
