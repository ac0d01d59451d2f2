"""Machinery below the stages: parts, input and stage checks, devices, random numbers, files."""
