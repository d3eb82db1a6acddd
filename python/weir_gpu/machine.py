"""What the machine needs besides PyTorch: a CUDA driver, a compiler, CUDA's headers. Each missing part is refused in one sentence."""

import glob
import os
import re
import shutil

from .refusal import Refusal

_DRIVER_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
)

# The oldest driver for each major version of CUDA, by NVIDIA's table of minor version compatibility.
_OLDEST_DRIVER = {"11": 450, "12": 525, "13": 580}

# Devices of a PC or server, of WSL, of Jetson. One is enough: sandboxes show only some.
_GPU_SIGNS = ("/dev/nvidia*", "/proc/driver/nvidia/gpus/*", "/dev/dxg", "/dev/nvhost-*", "/dev/nvmap")

_HEADERS = ("cuda.h", "cuda_runtime.h", "cuda_runtime_api.h", os.path.join("crt", "host_config.h"))


def check_driver(cuda_version, settings):
    """Refuses if there is no driver, or one too old for this PyTorch. Looks at files only: after CUDA has started, programs cannot fork."""
    path = _find_driver(settings)
    if path is None:
        raise Refusal("no-driver", "there is no NVIDIA driver here (libcuda.so.1 is missing)")
    if not any(glob.glob(pattern) for pattern in _GPU_SIGNS):
        raise Refusal("no-gpu", "there is no NVIDIA GPU here (no /dev/nvidia*)")
    version = re.search(r"libcuda\.so\.(\d+)\.\d+", os.path.realpath(path))
    oldest = _OLDEST_DRIVER.get(str(cuda_version).split(".")[0])
    if version and oldest and int(version.group(1)) < oldest:
        raise Refusal(
            "driver", f"the NVIDIA driver {version.group(0)[11:]} is too old for CUDA {cuda_version}, which needs {oldest} or newer"
        )


def _find_driver(settings):
    for folder in (*settings.library_path, *_DRIVER_FOLDERS):
        path = os.path.join(folder, "libcuda.so.1")
        if os.path.exists(path):
            return path
    # The loader may know other folders.
    import ctypes

    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return "libcuda.so.1"


def compilers(settings):
    """Paths of a C++ and a C compiler."""
    plus = _first(settings.cxx, "g++", "c++", "clang++")
    plain = _first(settings.cc, "gcc", "cc", "clang")
    if plus is None or plain is None:
        missing = "C++" if plus is None else "C"
        raise Refusal(
            "no-compiler",
            f"there is no {missing} compiler here, and Weir's adapter is compiled on first use; "
            "install g++ and gcc (package build-essential)",
        )
    return plus, plain


def _first(*names):
    for name in names:
        found = name and shutil.which(name)
        if found:
            return found
    return None


def cuda_headers(torch_folder, settings):
    """The folder of cuda_runtime_api.h: a toolkit's, or one that came with PyTorch's own dependencies."""
    nvcc = shutil.which("nvcc")
    site = os.path.dirname(torch_folder)
    candidates = [os.path.join(home, "include") for home in settings.cuda_homes]
    candidates += sorted(glob.glob(os.path.join(site, "nvidia", "cu[0-9]*", "include")), reverse=True)
    candidates.append(os.path.join(site, "nvidia", "cuda_runtime", "include"))
    candidates.append("/usr/local/cuda/include")
    candidates.append(nvcc and os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(nvcc))), "include"))
    candidates += sorted(glob.glob("/usr/local/cuda-*/include"), reverse=True)
    candidates.append("/usr/include")
    candidates.append(os.path.join(site, "triton", "backends", "nvidia", "include"))
    for folder in candidates:
        # PyTorch's headers include all of these, and a toolkit may be installed in part.
        if folder and all(os.path.exists(os.path.join(folder, name)) for name in _HEADERS):
            return folder
    raise Refusal(
        "no-cuda-headers",
        "CUDA's headers (cuda_runtime_api.h) are not here, and Weir's adapter is compiled on first use; "
        "set CUDA_HOME, or pip install nvidia-cuda-runtime",
    )
