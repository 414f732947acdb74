// `c10d/ProcessGroupGloo.hpp` includes headers of Gloo, which libtorch does not install. It only refers to their types
// by pointer and as a base class; the shim uses none of them. These declarations let it compile.
#pragma once
