// Whether the library runs under a sanitizer, where everything takes ten times as long. Asked at run time, because the
// same test programs run with the plain library and with an instrumented one.
#pragma once

#include <dlfcn.h>

namespace tenon {

inline bool sanitized() {
  static const bool found = dlsym(RTLD_DEFAULT, "__asan_init") || dlsym(RTLD_DEFAULT, "__tsan_init");
  return found;
}

}  // namespace tenon
