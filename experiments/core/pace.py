"""The end of lines of progress: how fast it goes, and how long the rest will take at that pace."""


def pace(done: float, total: float, seconds: float) -> str:
    """Says for example `12.3 a second, 0:41 left`, or `2.5 s each, 1:02:03 left`.

    Args:
      done: what has been done in these `seconds`, above 0.
      total: what there was to be done when they began.
      seconds: since then.
    """
    each = max(seconds, 1e-9) / done
    speed = f"{each:.3g} s each" if each > 1 else f"{1 / each:.3g} a second"
    return f"{speed}, {clock(each * (total - done))} left"


def clock(seconds: float) -> str:
    """`0:41`, or `1:02:03` from an hour on."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
