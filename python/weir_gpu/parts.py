"""Where the other parts of this installation are: the command, the native sources, the adapters that were compiled before.

A wheel has them inside of this package, in _js. The npm package has them around it, and so has the build of a clone."""

import os

_HERE = os.path.dirname(os.path.abspath(__file__))


def folder():
    """The folder that has python, native and cli in it."""
    inside = os.path.join(_HERE, "_js", "dist")
    return inside if os.path.isdir(inside) else os.path.dirname(os.path.dirname(_HERE))


def path(*names):
    return os.path.join(folder(), *names)
