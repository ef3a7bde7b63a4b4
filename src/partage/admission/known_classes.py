"""Known classes: the ElasticGPUClasses of the cluster; a sink for a reflector."""

from __future__ import annotations

from collections.abc import Callable, Collection

from partage.dialects.claims import objects


class KnownClasses:
    """The provisioners of the classes, by name; ``complete`` says whether all were read."""

    def __init__(self, complete: Callable[[], bool]) -> None:
        self.complete = complete
        self._provisioners: dict[str, str] = {}

    def put(self, gpu_class: objects.ElasticGPUClass) -> None:
        """A class is there."""
        self._provisioners[gpu_class.metadata.name] = gpu_class.provisioner

    def drop(self, name: str) -> None:
        """A class is gone."""
        self._provisioners.pop(name, None)

    def keys(self) -> Collection[str]:
        """The names of the classes."""
        return self._provisioners.keys()

    def provisioner(self, name: str) -> str | None:
        """What makes the shares of a class; None if it is not known."""
        return self._provisioners.get(name)
