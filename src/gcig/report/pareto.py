"""Which of several models no other one beats."""

from collections.abc import Sequence

__all__ = ["front"]


def front(points: Sequence[Sequence[float]]) -> list[bool]:
    """Whether each point is on the Pareto front: larger is better in every coordinate.

    A point is beaten by one that is at least as good everywhere and better somewhere. Points with a
    coordinate that is not a number are never on the front, and beat nobody.

    Examples
    --------
    >>> front([(0.9, -0.2), (0.8, -0.1), (0.8, -0.3)])
    [True, True, False]
    """

    def beats(a: Sequence[float], b: Sequence[float]) -> bool:
        return all(p >= q for p, q in zip(a, b, strict=True)) and any(
            p > q for p, q in zip(a, b, strict=True)
        )

    sound = [all(v == v for v in point) for point in points]
    return [
        ok and not any(s and beats(other, point) for other, s in zip(points, sound, strict=True))
        for point, ok in zip(points, sound, strict=True)
    ]
