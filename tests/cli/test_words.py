"""Numbers in messages agree with their words."""

from fedroute.words import count, noun


def test_one_and_many() -> None:
    assert [count(n, "image") for n in (0, 1, 2, 1204)] == ["0 images", "1 image", "2 images", "1,204 images"]
    assert count(1, "class", "classes") == "1 class"
    assert count(3, "class", "classes") == "3 classes"
    assert [noun(n, "round was", "rounds were") for n in (1, 2)] == ["round was", "rounds were"]
