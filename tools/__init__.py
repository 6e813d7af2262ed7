"""Commands that build and keep the book; run each as ``python -m tools.NAME``."""
