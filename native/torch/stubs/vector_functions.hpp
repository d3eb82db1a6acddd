// Searched last: stands in for CUDA's header of this name where an installation lacks it. It defines make_float4 and the like,
// which cuda_runtime.h names and nothing of ours uses.
#pragma once
