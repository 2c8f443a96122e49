"""Measurements, not tests: python -m benchmarks.throughput."""
