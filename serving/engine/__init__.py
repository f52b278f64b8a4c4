"""The engine process: scheduler, KV pool, runner, sampler.

This package itself and ``messages`` import no torch: the API process uses them too.
"""
