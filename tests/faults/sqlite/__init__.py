"""SQLite: killed, cut off from power, lied to by the disk, damaged."""
