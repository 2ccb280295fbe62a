"""``python -m tidewheel.cli`` is the ``tidewheel`` script, for where no script is on the path."""

from tidewheel.cli import main

if __name__ == "__main__":
    main()
