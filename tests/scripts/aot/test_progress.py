from scripts.aot.progress import Progress


def test_the_time_left_goes_by_guesses_and_by_how_they_held():
    now = iter([0.0, 4.0, 8.0])
    progress = Progress([2.0, 2.0, 30.0], lambda: next(now))
    progress.begin("first")
    assert progress.end("fine") == "[1/3] first: fine (about 1:04 left)"
    progress.begin("second")
    assert progress.end("fine") == "[2/3] second: fine (about 1:00 left)"
