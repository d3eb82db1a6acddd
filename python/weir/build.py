"""Compiles the adapter against the PyTorch that is there, once per user: into a cache, safe for many processes at once.

The name of what is made has in it all that it was made from, so nothing in the cache is ever out of date."""

import hashlib
import os
import subprocess
import sys
import tempfile
import threading
import time

from . import __version__, machine
from .refusal import Refusal
from .settings import CACHE_DIR, NATIVE

_SAY_AFTER_SECONDS = 1.5
_MOST_SECONDS = 600


def library(torch, settings, spoiled=None):
    """The path of the compiled adapter; one other than `spoiled`, the identity of one that cannot be loaded."""
    torch_folder = os.path.dirname(os.path.abspath(torch.__file__))
    abi = int(bool(getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", True)))
    plus, plain = machine.compilers(settings)
    sources = find_sources(settings)
    name = f"torch-{torch.__version__}"
    parts = [__version__, str(torch.__version__), str(abi), *_identity(plus), *_identity(plain)]
    target = os.path.join(cache_folder(settings), name, key(sources, parts), "libweir.so")
    if spoiled is None and os.path.exists(target):
        return target
    headers = machine.cuda_headers(torch_folder, settings)
    include = os.path.join(torch_folder, "include")
    commands = compile_commands(
        sources,
        plus=[plus, "-std=c++17", f"-D_GLIBCXX_USE_CXX11_ABI={abi}", "-isystem", include, "-isystem", headers, "-idirafter", sources.stubs],
        plain=[plain, "-std=gnu11"],
        link=[plus, "-L" + os.path.join(torch_folder, "lib"), "-lc10", "-lc10_cuda", *loaded_standard_library()],
    )
    return build(target, commands, f"torch {torch.__version__}", settings, spoiled)


def identity(path):
    there = os.stat(path)
    return there.st_dev, there.st_ino, there.st_mtime_ns


def _same_file(path, known):
    try:
        return identity(path) == known
    except OSError:
        return False


def loaded_standard_library():
    """The C++ library that PyTorch runs on, by its file. Some compilers come with the static one alone: two of them in one
    process do not know each other's locales, and the first number that is printed crashes."""
    with open("/proc/self/maps") as maps:
        found = {line.split(None, 5)[5].strip() for line in maps if "libstdc++.so" in line}
    return sorted(found)[:1]


class Sources:
    """The files to compile, the folders of their headers, and everything that decides what comes out."""

    def __init__(self, plus, plain, includes, stubs):
        self.plus, self.plain, self.includes, self.stubs = plus, plain, includes, stubs


def find_sources(settings):
    """Beside this package, as installed (native/ has the generated engine too) or as in the repository (build/native has it)."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    native = settings.native or os.path.join(os.path.dirname(here), "native")
    generated = next(
        (
            folder
            for folder in (native, os.path.join(os.path.dirname(os.path.abspath(native)), "build", "native"))
            if os.path.exists(os.path.join(folder, "engine.c"))
        ),
        None,
    )
    adapter = os.path.join(native, "torch", "weir_torch.cpp")
    if generated is None or not os.path.exists(adapter):
        raise Refusal("no-sources", f"Weir's own sources are not in {native}; install it anew, or set {NATIVE}")
    plain = [os.path.join(native, name) for name in sorted(os.listdir(native)) if name.endswith(".c")]
    engine = os.path.join(generated, "engine.c")
    if engine not in plain:
        plain.append(engine)
    includes = list(dict.fromkeys([native, os.path.join(native, "torch"), generated]))
    return Sources([adapter], plain, includes, os.path.join(native, "torch", "stubs"))


def key(sources, parts):
    """Of all sources and headers by content, and of all else that decides what the compiler makes."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() + b"\0")
    for folder in sources.includes:
        for name in sorted(os.listdir(folder)):
            if name.endswith((".c", ".cpp", ".h")):
                with open(os.path.join(folder, name), "rb") as file:
                    digest.update(name.encode() + b"\0" + hashlib.sha256(file.read()).digest())
    return digest.hexdigest()[:20]


def _identity(compiler):
    # Asking a compiler for its version takes longer than all the rest of a start.
    there = os.stat(os.path.realpath(compiler))
    return [os.path.realpath(compiler), str(there.st_size), str(int(there.st_mtime))]


def cache_folder(settings):
    """Ours alone: what lies there is loaded into programs."""
    chosen = settings.cache
    instead = os.path.join(tempfile.gettempdir(), f"weir-{os.getuid()}")
    if not chosen:
        base = settings.cache_home or os.path.join(os.path.expanduser("~"), ".cache")
        # Without HOME, for a user that has no name, "~" stays what it is.
        chosen = os.path.join(base, "weir") if os.path.isabs(base) else instead
    for folder in (chosen, instead):
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError:
            continue
        there = os.stat(folder)
        if there.st_uid == os.getuid() and not there.st_mode & 0o022 and os.access(folder, os.W_OK):
            return folder
        if folder == chosen and os.access(folder, os.W_OK) and there.st_uid == os.getuid():
            os.chmod(folder, 0o700)
            return folder
    raise Refusal("no-cache", f"there is no folder to keep the compiled adapter in ({chosen} cannot be written); set {CACHE_DIR}")


def compile_commands(sources, *, plus, plain, link):
    """[[commands that may run at once], [the one after them]]; each writes into the current folder."""
    common = ["-O2", "-fPIC", "-fvisibility=hidden", "-pthread", "-w", *(f"-I{folder}" for folder in sources.includes), "-c"]
    compiles, objects = [], []
    for compiler, files in ((plus, sources.plus), (plain, sources.plain)):
        for file in files:
            name = os.path.splitext(os.path.basename(file))[0] + ".o"
            objects.append(name)
            compiles.append([*compiler, *common, file, "-o", name])
    return [compiles, [[link[0], "-shared", "-pthread", "-o", "libweir.so", *objects, *link[1:], "-ldl"]]]


def build(target, commands, what, settings, spoiled=None):
    """Runs the commands unless another process has or is about to; gives the target. `spoiled`: identity of one that is no good."""
    folder = os.path.dirname(target)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise Refusal("no-cache", f"the compiled adapter cannot be kept in {folder}: {error.strerror}; set {CACHE_DIR}") from None
    with _Lock(os.path.join(folder, "lock")):
        if spoiled is not None and _same_file(target, spoiled):
            os.unlink(target)
        if os.path.exists(target):
            return target
        saying = threading.Timer(_SAY_AFTER_SECONDS, _say, [f"weir: compiling for {what} (once)…"])
        saying.daemon = True
        if not settings.quiet:
            saying.start()
        try:
            with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as work:
                _run_all(commands, work, os.path.join(folder, "build.log"))
                made = os.path.join(work, "libweir.so")
                with open(made, "rb+") as file:
                    # A name in the cache is a promise that all of it is there.
                    os.fsync(file.fileno())
                os.replace(made, target)
        except OSError as error:
            raise Refusal(
                "no-cache", f"the adapter could not be compiled in {folder}: {error.strerror or error}; set {CACHE_DIR}"
            ) from None
        finally:
            saying.cancel()
    return target


class _Lock:
    """One process at a time, as far as the file system can: where it cannot, each makes its own and the last rename wins."""

    def __init__(self, path):
        self.path, self.file = path, None

    def __enter__(self):
        try:
            import fcntl

            self.file = open(self.path, "a")
            fcntl.flock(self.file, fcntl.LOCK_EX)
        except OSError:
            pass

    def __exit__(self, *_):
        if self.file is not None:
            self.file.close()


def _say(text):
    try:
        print(text, file=sys.stderr, flush=True)
    except Exception:
        pass


def _run_all(commands, folder, log):
    deadline = time.monotonic() + _MOST_SECONDS
    with open(os.path.join(folder, "log"), "w+b") as output:
        for group in commands:
            failed = _run_group(group, folder, output, deadline)
            if failed is not None:
                os.replace(os.path.join(folder, "log"), log)
                raise Refusal("compile", f"Weir's adapter could not be compiled ({failed}); the compiler's words are in {log}")


def _run_group(group, folder, output, deadline):
    """At most as many at once as there are processors; None, or what failed."""
    environment = {**os.environ, "LC_ALL": "C"}
    waiting, running, failed = list(group), [], None
    most = max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    try:
        while waiting or running:
            while waiting and len(running) < most and failed is None:
                command = waiting.pop(0)
                output.write((" ".join(command) + "\n").encode())
                output.flush()
                process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
                running.append((process, os.path.basename(command[0])))
            still = []
            for process, name in running:
                code = process.poll()
                if code is None:
                    still.append((process, name))
                elif code != 0 and failed is None:
                    failed = f"{name} ended with {code}"
            running = still
            if time.monotonic() > deadline and failed is None:
                failed = f"it took more than {_MOST_SECONDS} s"
            if failed is not None:
                break
            if running:
                time.sleep(0.01)
    finally:
        for process, _ in running:
            process.kill()
            process.wait()
    return failed
