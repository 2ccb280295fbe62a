"""Built-in tasks, on real files and against hostile ones."""
