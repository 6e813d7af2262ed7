"""Measurements that print ratios: ``python -m benchmarks``, and two more by name."""
