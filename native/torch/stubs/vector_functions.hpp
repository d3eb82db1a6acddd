// Searched last: replaces CUDA's header of this name if an installation lacks it. CUDA's defines make_float4 and the like, which
// cuda_runtime.h names but the adapter does not use.
#pragma once
