"""Completion in bash, whose words are not those of a command: it breaks them at ``:`` and ``=``, URLs too."""

from __future__ import annotations

import os
from typing import Final

from click.shell_completion import BashComplete, add_completion_class, split_arg_string

_BROKEN: Final = 'COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD'
_LINE: Final = 'COMP_LINE="${COMP_LINE:0:$COMP_POINT}"'


class Bash(BashComplete):
    """Told the line as it was typed, up to the cursor."""

    source_template = BashComplete.source_template.replace(_BROKEN, _LINE)

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("COMP_LINE")
        if line is None:  # a script of before
            return super().get_completion_args()
        words = split_arg_string(line)
        typed = words.pop() if len(words) > 1 and not line[-1].isspace() else ""
        return words[1:], typed


def use_own_words() -> None:
    """From now on bash is answered by this."""
    add_completion_class(Bash, "bash")
