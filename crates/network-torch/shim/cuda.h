// See cuda_runtime_api.h.
#pragma once

#define CUDA_VERSION 13000
