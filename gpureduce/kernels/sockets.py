"""Sockets to processes that end when their socket is closed."""

from __future__ import annotations

import math
import os
import select
import socket
import weakref
from collections.abc import Iterable

_ours: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets. The first is closed in a child of fork(), which would hold it open."""
    ours, theirs = socket.socketpair()
    _ours.add(ours)
    return ours, theirs


def _forget() -> None:
    for one in list(_ours):
        one.close()


os.register_at_fork(after_in_child=_forget)


def ready(descriptors: Iterable[int], seconds: float) -> set[int]:
    """The descriptors that can be read, after at most this time. select() takes none over 1023."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    milliseconds = math.ceil(min(max(seconds, 0), 1e6) * 1000)
    return {descriptor for descriptor, _ in poll.poll(milliseconds)}
