"""Held-out rows: fixed by the seed, of every class, without leaks, whatever the order of the file."""

from stoker.data.splits import held_out


def test_the_share_is_kept_in_each_class() -> None:
    keys = list(range(1000))
    classes = ["rare" if i % 10 == 0 else "common" for i in keys]
    held = held_out(keys, classes, 0.2, seed=3)
    assert len(held) == 200
    assert sum(classes[i] == "rare" for i in held) == 20
    assert held == held_out(keys, classes, 0.2, seed=3)
    assert held != held_out(keys, classes, 0.2, seed=4)


def test_the_order_of_rows_does_not_matter() -> None:
    keys = [k * 7919 % 100_003 for k in range(500)]
    chosen = {keys[i] for i in held_out(keys, (), 0.1, seed=0)}
    backwards = keys[::-1]
    assert {backwards[i] for i in held_out(backwards, (), 0.1, seed=0)} == chosen


def test_equal_texts_stay_together() -> None:
    keys = [i // 4 for i in range(400)]
    held = held_out(keys, (), 0.25, seed=0)
    assert {keys[i] for i in held}.isdisjoint(keys[i] for i in range(400) if i not in held)
    assert len(held) == 100


def test_no_class_leaves_training() -> None:
    held = held_out([1, 2, 3], ["a", "b", "b"], 0.9, seed=0)
    assert 0 not in held and len(held) == 1


def test_a_tiny_share_still_holds_one_out() -> None:
    assert len(held_out(list(range(10)), (), 0.01, seed=0)) == 1
