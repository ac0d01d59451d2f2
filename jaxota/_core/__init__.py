"""Machinery below the stages: parts, input and stage checks, devices, batching, random numbers."""
