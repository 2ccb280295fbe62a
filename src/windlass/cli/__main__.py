"""``python -m windlass.cli`` is the ``windlass`` script, for where no script is on the path."""

from windlass.cli import main

if __name__ == "__main__":
    main()
