"""What the machine must have besides PyTorch: a CUDA driver, a compiler, CUDA's headers. Each missing thing is one sentence."""

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

# Devices of a PC or server, of WSL, of Jetson; any one will do, since sandboxes show only some.
_GPU_SIGNS = ("/dev/nvidia*", "/proc/driver/nvidia/gpus/*", "/dev/dxg", "/dev/nvhost-*", "/dev/nvmap")

_HEADERS = ("cuda.h", "cuda_runtime.h", "cuda_runtime_api.h", os.path.join("crt", "host_config.h"))


def check_driver(cuda_version, environment):
    """Refuses where there is no driver or one too old for this PyTorch. Looks at files only: starting CUDA would forbid forks."""
    path = _find_driver(environment)
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


def _find_driver(environment):
    folders = [folder for folder in environment.get("LD_LIBRARY_PATH", "").split(":") if folder]
    for folder in [*folders, *_DRIVER_FOLDERS]:
        path = os.path.join(folder, "libcuda.so.1")
        if os.path.exists(path):
            return path
    # Wherever else the loader may know it to be.
    import ctypes

    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return "libcuda.so.1"


def compilers(environment):
    """A C++ and a C compiler."""
    plus = _first(environment.get("CXX"), "g++", "c++", "clang++")
    plain = _first(environment.get("CC"), "gcc", "cc", "clang")
    if plus is None or plain is None:
        missing = "C++" if plus is None else "C"
        raise Refusal(
            "no-compiler",
            f"there is no {missing} compiler here, and Weir's adapter is compiled on first use; install g++ and gcc (package build-essential)",
        )
    return plus, plain


def _first(*names):
    for name in names:
        found = name and shutil.which(name)
        if found:
            return found
    return None


def cuda_headers(torch_folder, environment):
    """The folder of cuda_runtime_api.h: of a toolkit, or as PyTorch's own dependencies bring it."""
    nvcc = shutil.which("nvcc")
    site = os.path.dirname(torch_folder)
    candidates = [environment.get(name) and os.path.join(environment[name], "include") for name in ("CUDA_HOME", "CUDA_PATH")]
    candidates += sorted(glob.glob(os.path.join(site, "nvidia", "cu[0-9]*", "include")), reverse=True)
    candidates.append(os.path.join(site, "nvidia", "cuda_runtime", "include"))
    candidates.append("/usr/local/cuda/include")
    candidates.append(nvcc and os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(nvcc))), "include"))
    candidates += sorted(glob.glob("/usr/local/cuda-*/include"), reverse=True)
    candidates.append("/usr/include")
    candidates.append(os.path.join(site, "triton", "backends", "nvidia", "include"))
    for folder in candidates:
        # PyTorch's headers include these: a toolkit may have been installed in part.
        if folder and all(os.path.exists(os.path.join(folder, name)) for name in _HEADERS):
            return folder
    raise Refusal(
        "no-cuda-headers",
        "CUDA's headers (cuda_runtime_api.h) are not here, and Weir's adapter is compiled on first use; set CUDA_HOME, or pip install nvidia-cuda-runtime",
    )
