"""The folder of the compiled adapter. Programs load what lies there, so it must be ours, and only we may write to it.

Folders and files are opened first and checked then, by their descriptors. Nobody else can exchange them in between or later, since no
folder above the cache lets others rename what is in it. So the library is loaded by its own path, which debuggers and PyTorch's own
stack traces read again."""

import os
import stat
import tempfile

from .abi import UserVariable
from .refusal import Refusal, say

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Unsafe(Exception):
    """Why a folder or a file is not used."""


class Folder:
    """A folder of the cache. It and all folders above it, up to the root of the cache, are ours alone."""

    def __init__(self, root, names=()):
        """Makes what is missing. Existing folders keep their modes: they may have been made for others too."""
        self.path = root
        os.makedirs(root, mode=0o700, exist_ok=True)
        _check_above(root)
        self.fd = _opened(root, _FOLDER, _check_folder)
        try:
            for name in names:
                self._enter(name)
            if not os.access(self.path, os.W_OK):
                raise Unsafe(f"{self.path} cannot be written")
        except BaseException:
            self.close()
            raise

    def _enter(self, name):
        try:
            os.mkdir(name, 0o700, dir_fd=self.fd)
        except FileExistsError:
            pass
        path = os.path.join(self.path, name)
        below = _opened(name, _FOLDER, _check_folder, self.fd, path)
        os.close(self.fd)
        self.fd, self.path = below, path

    def close(self):
        os.close(self.fd)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def library(self, name):
        """The compiled file, or None if there is none that is ours."""
        path = os.path.join(self.path, name)
        try:
            return Library(path, _opened(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, _check_file, self.fd, path))
        except (OSError, Unsafe):
            return None


class Library:
    """A checked file."""

    def __init__(self, path, fd):
        self.path = path
        there = os.fstat(fd)
        os.close(fd)
        self.identity = (there.st_dev, there.st_ino, there.st_mtime_ns)


def find(settings, names):
    """The first usable folder, with the folders `names` in it. Says why if it is not the one that the user would expect."""
    base = settings.cache_home or os.path.join(os.path.expanduser("~"), ".cache")
    # For a user without HOME and without a name, "~" is not expanded.
    usual = [os.path.join(base, "weir")] if os.path.isabs(base) else []
    roots = [*([settings.cache] if settings.cache else []), *usual, os.path.join(tempfile.gettempdir(), f"weir-{os.geteuid()}")]
    problem = None
    for root in roots:
        try:
            # The user's folder may be a link. A link with a known name among temporary files may be anybody's.
            folder = Folder(root if root == roots[-1] else os.path.realpath(root), names)
        except (OSError, Unsafe) as error:
            problem = problem or (root, _why(error, root))
            continue
        break
    else:
        folder = _temporary(names, *problem)
    if problem is not None and not settings.quiet and not settings.local_rank:
        say(
            f"weir: the compiled adapter is kept in {folder.path}, because {problem[1]}; "
            f"set {UserVariable.CACHE_DIR} to a folder that only you can write"
        )
    return folder


def _temporary(names, root, why):
    import atexit
    import shutil

    try:
        fresh = tempfile.mkdtemp(prefix="weir-")
        atexit.register(shutil.rmtree, fresh, ignore_errors=True)
        return Folder(fresh, names)
    except (OSError, Unsafe):
        raise Refusal("no-cache", f"there is no folder to keep the compiled adapter in ({why}); set {UserVariable.CACHE_DIR}") from None


def _why(error, root):
    return str(error) if isinstance(error, Unsafe) else f"{root} cannot be used ({error.strerror or error})"


def _opened(name, flags, check, above=None, path=None):
    """The descriptor of a file or folder that was found to be ours alone."""
    path = path or name
    try:
        fd = os.open(name, flags, dir_fd=above)
    except OSError as error:
        # Links: ELOOP for a file, ENOTDIR for a folder.
        if os.path.islink(path):
            raise Unsafe(f"{path} is a link") from None
        raise error
    try:
        check(path, os.fstat(fd))
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_above(root):
    """Whoever may write to a folder can rename what is in it, unless the folder is sticky, as /tmp is."""
    path = os.path.dirname(os.path.abspath(root))
    while True:
        mode = os.stat(path).st_mode
        if mode & 0o022 and not mode & stat.S_ISVTX:
            raise Unsafe(f"others may rename {root}, because they may write to {path}")
        if path == os.path.dirname(path):
            return
        path = os.path.dirname(path)


def _check_folder(path, there):
    _check_owner(path, there)
    if there.st_mode & 0o022:
        raise Unsafe(f"others may write to {path} (chmod go-w {path} forbids it)")


def _check_file(path, there):
    _check_owner(path, there)
    if there.st_mode & 0o022 or not stat.S_ISREG(there.st_mode):
        raise Unsafe(f"others may write to {path}")


def _check_owner(path, there):
    if there.st_uid != os.geteuid():
        raise Unsafe(f"{path} belongs to another user (uid {there.st_uid})")
