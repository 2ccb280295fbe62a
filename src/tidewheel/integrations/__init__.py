"""At home in frameworks: each module imports its framework, and only that one.

Nothing else of Tidewheel imports these; whoever has the framework has all that is needed.
"""
