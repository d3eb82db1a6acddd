"""Adapters that were compiled when the wheel was made, one per version of PyTorch, so that no compiler is needed here.

One is used only if it is certain to fit: made from the sources beside it, for this version, against the same interface of PyTorch."""

import hashlib
import json
import os
import re

from . import __version__, adapter, build, cache, parts
from .abi import DIGEST
from .refusal import say

_FOLDER = "prebuilt"
_MANIFEST = "manifest.json"
# Builds before a release, and builds of others, may have another interface under the same version.
_RELEASE = re.compile(r"(\d+\.\d+)\.\d+(\+cu\d+)?")
# Around every header of a wheel, and in no other.
_WRAPPING = re.compile(rb"^#if !defined\(TORCH_STABLE_ONLY\)[^\n]*|^#else[ \t\r\n]+#error[^\n]*[ \t\r\n]+#endif[^\n]*[ \t\r\n]*\Z", re.M)
_COMMENT = re.compile(rb"//[^\n]*|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/")


class Unfit(Exception):
    """Why an adapter that is there is not used."""


def loadable(torch, settings):
    """The path of an adapter that fits and can be loaded; None if one has to be compiled. Says why if one is there."""
    try:
        path = find(torch, settings)
        if path is not None:
            adapter.load(path)
        return path
    except (Unfit, OSError) as error:
        if not settings.quiet and not settings.local_rank:
            say(f"weir: the adapter that came with Weir is not used, so one is compiled: {error}")
        return None


def find(torch, settings):
    """The path of the adapter. None if there is none for this PyTorch, or if the user names sources; Unfit if it must not be used."""
    folder = parts.path(_FOLDER)
    if not os.path.exists(os.path.join(folder, _MANIFEST)):
        return None
    if settings.native and os.path.realpath(settings.native) != os.path.realpath(parts.path("native")):
        return None
    try:
        with open(os.path.join(folder, _MANIFEST), encoding="utf-8") as file:
            manifest = json.load(file)
        entry = _matching(manifest["adapters"], torch)
        if entry is None:
            return None
        _check_sources(manifest, settings)
        _check_interface(entry, os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "include"))
        return _checked(os.path.join(folder, *entry["file"].split("/")), entry["sha256"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unfit(f"{folder} is damaged ({type(error).__name__}: {error})") from None
    except cache.Unsafe as error:
        raise Unfit(str(error)) from None


def _matching(adapters, torch):
    version = _RELEASE.fullmatch(str(torch.__version__))
    abi = int(bool(getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", True)))
    return next((one for one in adapters if version and (one["pytorch"], one["abi"]) == (version.group(1), abi)), None)


def _check_sources(manifest, settings):
    made_from = (manifest["version"], manifest["digest"], manifest["sources"])
    if made_from != (__version__, DIGEST, build.key(build.find_sources(settings), [])):
        raise Unfit("it was made from other sources than those that are here")


def _check_interface(entry, include):
    """PyTorch's headers declare the classes that both sides share. A build of PyTorch may have changed them."""
    digest = hashlib.sha256()
    for name in entry["headers"]:
        try:
            with open(os.path.join(include, *name.split("/")), "rb") as file:
                digest.update(name.encode() + b"\0" + declarations(file.read()) + b"\0")
        except FileNotFoundError:
            raise Unfit(f"PyTorch's header {name} is not in {include}, so nobody can tell whether it fits") from None
    if digest.hexdigest() != entry["interface"]:
        raise Unfit(f"the headers in {include} are not those of PyTorch {entry['pytorch']}")


def declarations(text):
    """A header without comments, white space and what PyTorch puts around it in a wheel."""
    return b" ".join(_COMMENT.sub(b"", _WRAPPING.sub(b"", text)).split())


def _checked(path, sha256):
    """The path, if the library has the bytes that were made and nobody may change them but those who may change this code."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        _check_writers(path, os.fstat(file.fileno()))
        if hashlib.sha256(file.read()).hexdigest() != sha256:
            raise Unfit(f"{path} is damaged")
    for above in (os.path.dirname(path), parts.path(_FOLDER), parts.folder()):
        _check_writers(above, os.stat(above))
    return path


def _check_writers(path, there):
    code = os.stat(os.path.abspath(__file__))
    if there.st_uid not in (0, os.geteuid(), code.st_uid):
        raise cache.Unsafe(f"{path} belongs to another user (uid {there.st_uid})")
    writers = there.st_mode & 0o022
    if writers & ~code.st_mode or (writers & 0o020 and there.st_gid != code.st_gid):
        raise cache.Unsafe(f"others may write to {path}")
