"""The engine process: scheduler, KV pool, runner, sampler. Only modules that say so import torch."""
