"""`python -m weir_gpu.doctor`: what this Python has for `weir run`, as one line of JSON on stdout. `weir doctor` runs it and shows it.

It needs no PyTorch and no GPU, and does not start CUDA. A Python too old for the rest of the package still answers."""

import json
import os
import sys


def facts():
    found = {
        "executable": sys.executable,
        "version": sys.version.split()[0],
        "torch": None,  # version
        "cuda": None,  # version of CUDA that PyTorch was built for
        "torchProblem": None,  # why torch cannot be imported
        "adapter": None,  # path of the adapter for this PyTorch that came with Weir
        "adapterProblem": None,  # why it is not used
        "headers": None,  # folder of CUDA's headers
        "headersProblem": None,
        "refusals": [],  # every sentence that `weir run` would refuse with
    }
    torch, found["torchProblem"] = _import_torch()
    if torch is not None:
        found["torch"], found["cuda"] = str(torch.__version__), torch.version.cuda
        try:
            _check(torch, found)
        except Exception as error:
            found["refusals"].append(f"{type(error).__name__}: {error}")
    return found


def _import_torch():
    """The module and None, or None and why not."""
    # Otherwise PyTorch would call our entry point, which installs Weir in this process.
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    try:
        import torch
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
    return torch, None


def _check(torch, found):
    """The same checks as inside a job, so that the sentences are the same."""
    from . import activate, machine, prebuilt, settings
    from .refusal import Refusal

    here = settings.read()

    def attempt(check, *arguments):
        try:
            return check(*arguments), None
        except Refusal as refusal:
            found["refusals"].append(str(refusal))
            return None, str(refusal)

    attempt(activate.check_torch, torch, here)
    attempt(machine.check_driver, torch.version.cuda, here)
    try:
        found["adapter"] = prebuilt.find(torch, here)
    except prebuilt.Unfit as unfit:
        found["adapterProblem"] = str(unfit)
    if found["adapter"] is None:
        attempt(machine.compilers, here)
        found["headers"], found["headersProblem"] = attempt(machine.cuda_headers, os.path.dirname(torch.__file__), here)


if __name__ == "__main__":
    print(json.dumps(facts()))
