"""Photos for tests that need files of a given name, not of given contents."""

from PIL import Image


def draw(path):
    """Write a small image, and the folders that it is in; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4)).save(path)
    return path
