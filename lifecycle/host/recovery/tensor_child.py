"""Writes and reads back 4 MiB on every GPU; run as a process of its own.

Through the CUDA driver itself (CUDA driver API reference, "Memory Management"), so that it
needs no torch and takes a fraction of a second. Exits with 3 where there is no libcuda.so.1.
"""

from __future__ import annotations

import ctypes
import sys

_WORDS = 1 << 20
_PATTERN = 0x5EEDC0DE
_NO_CUDA = 3


def _check(cuda: ctypes.CDLL, call: str, *arguments: object) -> None:
    status = getattr(cuda, call)(*arguments)
    if status != 0:
        sys.exit(f"{call} returned {status}")


def main() -> int:
    """Try every device; the first that fails ends the program with its call and status."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return _NO_CUDA
    count = ctypes.c_int()
    _check(cuda, "cuInit", 0)
    _check(cuda, "cuDeviceGetCount", ctypes.byref(count))
    for index in range(count.value):
        device, context = ctypes.c_int(), ctypes.c_void_p()
        memory, back = ctypes.c_uint64(), (ctypes.c_uint32 * _WORDS)()
        _check(cuda, "cuDeviceGet", ctypes.byref(device), index)
        _check(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        _check(cuda, "cuCtxSetCurrent", context)
        _check(cuda, "cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(4 * _WORDS))
        _check(cuda, "cuMemsetD32_v2", memory, ctypes.c_uint32(_PATTERN), ctypes.c_size_t(_WORDS))
        _check(cuda, "cuMemcpyDtoH_v2", back, memory, ctypes.c_size_t(4 * _WORDS))
        _check(cuda, "cuMemFree_v2", memory)
        _check(cuda, "cuDevicePrimaryCtxRelease_v2", device)
        if any(word != _PATTERN for word in back):
            sys.exit(f"GPU {index} gave back other values than were written")
    print(f"4 MiB written and read back on {count.value} GPUs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
