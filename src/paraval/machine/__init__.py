"""The machine as this process may use it: cores, memory, pressure, including cgroup limits."""
