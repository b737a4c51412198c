"""A network of this process's own: nothing listens outside, and ports are never in use by others.

It is entered before anything is started. All children inherit it, and it is gone with the last of them. It is made with
system calls, so that neither `ip` nor a second process is needed.
"""

import ctypes
import fcntl
import os
import socket
import struct

ADDRESS = "10.99.0.1"  # what the API server advertises, because loopback addresses are refused for that
_CLONE_NEWNET = 0x40000000
_SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSIFFLAGS = 0x8916, 0x891C, 0x8914
_UP = 0x1


def enter() -> None:
    """From now on this process has loopback only, with ADDRESS on it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"no network of our own: {os.strerror(ctypes.get_errno())}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _UP))
    add(ADDRESS, b"lo:1")


def add(address: str, alias: bytes) -> None:
    """One more address of loopback, such as that of a Service: there is no kube-proxy."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFADDR, _with_address(alias, address))
        fcntl.ioctl(control, _SIOCSIFNETMASK, _with_address(alias, "255.255.255.255"))


def _with_address(interface: bytes, address: str) -> bytes:
    return struct.pack("16sHH4s8x", interface, socket.AF_INET, 0, socket.inet_aton(address))
