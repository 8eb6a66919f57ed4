// Included before FlashAttention-3's launch templates: leaves out variants that are not timed, each of which costs the
// compiler minutes: the deterministic backward pass and, with LONGHAUL_VARLEN_ONLY, equal lengths.
//
// The library chooses variants with BOOL_SWITCH(CONDITION, NAME, ...) (static_switch.h, whose guard keeps it from
// defining the macro again); here the name says which ways there are.
#pragma once

#include <static_switch.h>

#define LONGHAUL_BOTH_WAYS(CONDITION, NAME, ...) \
  [&] {                                          \
    if (CONDITION) {                             \
      constexpr static bool NAME = true;         \
      return __VA_ARGS__();                      \
    } else {                                     \
      constexpr static bool NAME = false;        \
      return __VA_ARGS__();                      \
    }                                            \
  }()
#define LONGHAUL_ONE_WAY(VALUE, NAME, ...) \
  [&] {                                    \
    constexpr static bool NAME = VALUE;    \
    return __VA_ARGS__();                  \
  }()

#ifdef LONGHAUL_VARLEN_ONLY
#define LONGHAUL_SWITCH_Varlen(CONDITION, NAME, ...) LONGHAUL_ONE_WAY(true, NAME, __VA_ARGS__)
#else
#define LONGHAUL_SWITCH_Varlen LONGHAUL_BOTH_WAYS
#endif
#define LONGHAUL_SWITCH_GQA LONGHAUL_BOTH_WAYS
#define LONGHAUL_SWITCH_Use_cluster LONGHAUL_BOTH_WAYS
#define LONGHAUL_SWITCH_HasQV_(CONDITION, NAME, ...) LONGHAUL_ONE_WAY(false, NAME, __VA_ARGS__)
#define LONGHAUL_SWITCH_Deterministic_(CONDITION, NAME, ...) LONGHAUL_ONE_WAY(false, NAME, __VA_ARGS__)

#undef BOOL_SWITCH
#define BOOL_SWITCH(CONDITION, NAME, ...) LONGHAUL_SWITCH_##NAME(CONDITION, NAME, __VA_ARGS__)
