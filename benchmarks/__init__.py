"""Measurements that print ratios; run each as ``python -m benchmarks.NAME``."""
