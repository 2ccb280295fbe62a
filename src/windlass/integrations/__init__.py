"""At home in frameworks: each module imports its framework, and only that one.

Nothing else of Windlass imports these; whoever has the framework has all that is needed.
"""
