// Fault injection, for tests: driver calls that fail on purpose. It needs native/testing, which users do not have.
// The build has it if that folder lies beside this one.
#pragma once

#include "backend/weir_backend.h"

#if __has_include("testing/weir_testing.h")
#include "testing/weir_testing.h"
#define WEIR_TORCH_HAS_FAULTS 1
#else
#define WEIR_TORCH_HAS_FAULTS 0
#endif

namespace weir {

constexpr bool kHasFaults = WEIR_TORCH_HAS_FAULTS;

// Only if kHasFaults; installation.cpp refuses to begin otherwise.
inline weir_backend* with_faults(weir_backend* backend, uint32_t per_million, uint64_t seed) {
#if WEIR_TORCH_HAS_FAULTS
  return weir_faulty_backend(backend, per_million, seed);
#else
  (void)per_million, (void)seed;
  return backend;
#endif
}

} // namespace weir
