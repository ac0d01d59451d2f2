"""Parts, input checks, stage checks, devices, batching, random numbers: what the rooms stand on."""
