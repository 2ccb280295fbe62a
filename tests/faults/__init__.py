"""Trying to break every promise: real processes, real signals, real disks, and a simulation of all of it."""
