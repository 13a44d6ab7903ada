from diptych.progress import no_progress


def test_no_progress_accepts_updates_and_shows_nothing(capsys):
    with no_progress("encoding") as progress:
        progress(1, 2)
    assert capsys.readouterr() == ("", "")
