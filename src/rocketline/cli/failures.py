"""What a person sees when a command fails: one line with the cause, or the traceback when asked for."""

from __future__ import annotations

from rocketline.errors import RocketlineError

DEBUG_FLAG = "--debug"


def take_debug(arguments: list[str]) -> tuple[bool, list[str]]:
    """Whether `--debug` is there; it is taken out, so that it may follow the command too."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept = [item for item in arguments[:end] if item != DEBUG_FLAG]
    return len(kept) < end, kept + arguments[end:]


def one_line(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())
    if isinstance(error, RocketlineError):
        return text
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return f"unforeseen {type(error).__name__}: {text}; run again with {DEBUG_FLAG} and report what it shows"
