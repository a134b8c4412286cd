// Included first in every file that clang compiles. nlohmann/json 3.11 asks compilers for [[no_unique_address]] in a
// way that GCC affirms and clang denies, so an ordered_json of one is not an ordered_json of the other. With this it
// is: a library made by clang serves programs made by GCC.
#pragma once
#include <nlohmann/detail/macro_scope.hpp>
#undef JSON_NO_UNIQUE_ADDRESS
#define JSON_NO_UNIQUE_ADDRESS [[no_unique_address]]
#include <nlohmann/ordered_map.hpp>
