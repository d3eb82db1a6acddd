"""Compiles the adapter against the installed PyTorch, once per user, into a cache. Many processes may do it at once.

The name of the library is a hash of all that it was made from, so nothing in the cache is ever out of date."""

import glob
import hashlib
import json
import os
import re
import secrets
import subprocess
import threading
import time

from . import __version__, cache, compile_error, machine, parts
from .abi import UserVariable
from .refusal import Refusal, say

_SAY_AFTER_SECONDS = 1.5
_MOST_SECONDS = 600
_LIBRARY = "libweir.so"
_SOURCES = (".c", ".cpp", ".h", ".hpp", ".json")


def library(torch, settings, spoiled=None):
    """The compiled adapter, as a cache.Library. `spoiled` is the identity of a file that cannot be loaded and must be made again."""
    torch_folder = os.path.dirname(os.path.abspath(torch.__file__))
    abi = int(bool(getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", True)))
    plus, plain = machine.compilers(settings)
    sources = find_sources(settings)
    parts = [__version__, str(torch.__version__), str(abi), *_identity(plus), *_identity(plain)]
    with cache.find(settings, [f"pytorch-{torch.__version__}", key(sources, parts)]) as folder:
        there = folder.library(_LIBRARY) if spoiled is None else None
        return there or _compiled(folder, torch, torch_folder, abi, sources, {"cpp": plus, "c": plain}, settings, spoiled)


def _compiled(folder, torch, torch_folder, abi, sources, compilers, settings, spoiled):
    headers = machine.cuda_headers(torch_folder, settings)
    include = os.path.join(torch_folder, "include")
    commands = compile_commands(
        sources,
        compilers=compilers,
        extra={
            "cpp": [sources.standard_for(torch.__version__), f"-D_GLIBCXX_USE_CXX11_ABI={abi}", "-isystem", include, "-isystem", headers],
            "c": [],
        },
        links=["-L" + os.path.join(torch_folder, "lib"), *sources.links, *loaded_standard_library()],
    )

    def explain(log, failed, log_path):
        return compile_error.sentence(log, torch.__version__, failed, log_path, sources.native)

    return build(folder, commands, f"torch {torch.__version__}", settings, spoiled, explain)


def loaded_standard_library():
    """The file of the C++ library that PyTorch has loaded. Some compilers only have the static one. With two C++ libraries in one
    process, locales differ and the first number that is printed crashes."""
    with open("/proc/self/maps") as maps:
        found = {line.split(None, 5)[5].strip() for line in maps if "libstdc++.so" in line}
    return sorted(found)[:1]


class Sources:
    """The adapter by the rules of native/build.json. `files` are pairs: a source and the flags for it alone."""

    def __init__(self, native, generated):
        self.native, self.generated = native, generated
        with open(os.path.join(native, "build.json"), encoding="utf-8") as file:
            rules = json.load(file)
        library = rules["libraries"][_LIBRARY]
        self.standards, self._pytorch_standards = rules["standards"], rules["pytorchStandards"]
        self.shared_flags, self.flags = rules["flags"], [*rules["builds"]["user"], *(f"-I{self._path(name)}" for name in rules["includes"])]
        self.links, self.last = library["links"], rules["link"]
        self.files = []
        for part in (rules["parts"][name] for name in library["parts"]):
            flags = [*part.get("flags", []), *(word for name in part.get("lastIncludes", []) for word in ("-idirafter", self._path(name)))]
            found = [file for pattern in part["sources"] for file in self._matching(pattern)]
            if not found and not part.get("optional"):
                raise OSError(f"nothing in {native} is {part['sources'][0]}")
            self.files += [(file, flags) for file in found]

    def standard_for(self, torch_version):
        """The C++ that the headers of a PyTorch need."""
        flags = [flag for first, flag in self._pytorch_standards.items() if minor_of(first) <= minor_of(torch_version)]
        return flags[-1] if flags else self.standards["cpp"]

    def _path(self, name):
        folder = self.generated if name.startswith("@") else self.native
        return os.path.join(folder, name.lstrip("@/"))

    def _matching(self, pattern):
        folder, name = os.path.split(self._path(pattern))
        return sorted(glob.glob(os.path.join(glob.escape(folder), name)))

    def everything(self):
        """Every file that can change the result: name and path."""
        for folder in dict.fromkeys([self.native, self.generated]):
            for where, folders, names in os.walk(folder):
                # build/native has compiled files in folders below it.
                folders[:] = sorted(folders) if folder == self.native else []
                for name in sorted(names):
                    if name.endswith(_SOURCES):
                        path = os.path.join(where, name)
                        yield os.path.relpath(path, folder), path


def minor_of(torch_version):
    """(2, 11) for "2.11.0+cu130"."""
    found = re.match(r"(\d+)\.(\d+)", str(torch_version))
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def find_sources(settings):
    """The sources beside this package. The generated engine lies in native/ if installed, in build/native in the repository."""
    # The compiler runs in another folder.
    native = os.path.abspath(settings.native or parts.path("native"))
    for generated in (native, os.path.join(os.path.dirname(native), "build", "native")):
        if os.path.exists(os.path.join(generated, "engine.c")):
            try:
                return Sources(native, generated)
            except OSError:
                break
    raise Refusal("no-sources", f"Weir's own sources are not in {native}; install it anew, or set {UserVariable.NATIVE_DIR}")


def key(sources, parts):
    """A hash of all sources and headers, and of `parts`: whatever else can change the result."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() + b"\0")
    for name, path in sources.everything():
        with open(path, "rb") as file:
            digest.update(name.encode() + b"\0" + hashlib.sha256(file.read()).digest())
    return digest.hexdigest()[:20]


def _identity(compiler):
    # Asking a compiler for its version would take longer than the rest of a start.
    there = os.stat(os.path.realpath(compiler))
    return [os.path.realpath(compiler), str(there.st_size), str(int(there.st_mtime))]


def compile_commands(sources, *, compilers, extra, links):
    """[[commands that may run at once], [the command after them]]; each writes into the current folder."""
    compiles, objects = [], []
    for number, (file, flags) in enumerate(sources.files):
        language = "cpp" if file.endswith(".cpp") else "c"
        # Numbered, because files of two folders may have the same name.
        objects.append(f"{number}.o")
        words = [sources.standards[language], *sources.shared_flags, *sources.flags, *flags, *extra[language]]
        compiles.append([compilers[language], *words, "-c", file, "-o", objects[-1]])
    return [compiles, [[compilers["cpp"], "-shared", *sources.shared_flags, "-o", _LIBRARY, *objects, *links, *sources.last]]]


def build(folder, commands, what, settings, spoiled=None, explain=None):
    """Runs the commands, unless another process has; returns the library. `spoiled`: the identity of a file to make again.
    `explain` makes a sentence of a failure: what the compilers said, which of them ended how, the path of the log."""
    with _Lock(folder):
        there = folder.library(_LIBRARY)
        if there is not None and there.identity != spoiled:
            return there
        saying = threading.Timer(_SAY_AFTER_SECONDS, say, [f"weir: compiling for {what} (once)…"])
        saying.daemon = True
        if not settings.quiet:
            saying.start()
        try:
            _make(folder, commands, explain or compile_error.plain)
            made = folder.library(_LIBRARY)
        except (OSError, cache.Unsafe) as error:
            why = getattr(error, "strerror", None) or error
            raise Refusal("no-cache", f"the adapter could not be compiled in {folder.path}: {why}; set {UserVariable.CACHE_DIR}") from None
        finally:
            saying.cancel()
    if made is None:
        raise Refusal("no-cache", f"the compiled adapter is not in {folder.path} any more; set {UserVariable.CACHE_DIR}")
    return made


def _make(folder, commands, explain):
    """Compiles in a folder of its own. A file in the cache is complete, even after a crash."""
    name = f"build-{os.getpid()}-{secrets.token_hex(4)}"
    os.mkdir(name, 0o700, dir_fd=folder.fd)
    work = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder.fd)
    try:
        _run_all(commands, folder, name, work, explain)
        made = os.open(_LIBRARY, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=work)
        try:
            # With a umask of 002, compilers let the group write.
            os.fchmod(made, 0o700)
            os.fsync(made)
        finally:
            os.close(made)
        os.replace(_LIBRARY, _LIBRARY, src_dir_fd=work, dst_dir_fd=folder.fd)
    finally:
        for left in os.listdir(work):
            os.unlink(left, dir_fd=work)
        os.close(work)
        os.rmdir(name, dir_fd=folder.fd)


class _Lock:
    """One process at a time, if the file system has locks. Otherwise each process compiles, and the last rename wins."""

    def __init__(self, folder):
        self.folder, self.file = folder, None

    def __enter__(self):
        try:
            import fcntl

            self.file = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self.folder.fd)
            fcntl.flock(self.file, fcntl.LOCK_EX)
        except OSError:
            pass

    def __exit__(self, *_):
        if self.file is not None:
            os.close(self.file)


def _run_all(commands, folder, name, work, explain):
    deadline = time.monotonic() + _MOST_SECONDS
    # The compiler must work in this very folder, whatever its name leads to by then.
    place = f"/proc/self/fd/{work}"
    place = place if os.path.isdir(place) else os.path.join(folder.path, name)
    with open(os.open("log", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=work), "w+b") as output:
        for group in commands:
            failed = _run_group(group, place, output, deadline)
            if failed is not None:
                os.replace("log", "build.log", src_dir_fd=work, dst_dir_fd=folder.fd)
                log = os.path.join(folder.path, "build.log")
                output.seek(0)
                raise Refusal("compile", explain(output.read().decode(errors="replace"), failed, log))


def _run_group(group, folder, output, deadline):
    """Runs at most as many commands at once as there are processors. Returns None, or what failed."""
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
