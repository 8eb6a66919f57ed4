"""How long calls take: what the measuring scripts of this folder share."""

import time

import torch


def wall(call, times=1):
    """Seconds of so many calls: until the last returns, and until the GPU has done them. The GPU is idle beforehand."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(times):
        call()
    host = time.perf_counter() - begin
    torch.cuda.synchronize()
    return host, time.perf_counter() - begin
