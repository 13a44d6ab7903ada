"""`diptych album`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.console import print_note, print_result, printable, stdout
from diptych.cli.options import Index
from diptych.cli.places import index_of

if TYPE_CHECKING:
    from diptych.index.backend import IndexStore
    from diptych.index.spec import IndexSpec

_HELP = """List, change and read the albums of an index; the favourites are the album Favourites.

Examples:

    diptych album create photos.diptych "Summer 2025"

    diptych album add photos.diptych "Summer 2025" 17 23 ~/Pictures/2025/beach.jpg

    diptych search photos.diptych sunset --paths -0 | xargs -0 diptych album add photos.diptych Sunsets

    diptych album paths photos.diptych Favourites -0 | xargs -0 cp -t best
"""

app = typer.Typer(help=_HELP, no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of an album, in upper or lower case.")]
Images = Annotated[
    list[str], typer.Argument(metavar="IMAGE", help="Ids that `diptych search` prints, paths of files, or keys.")
]


@app.command("list")
def list_command(
    index: Index, as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False
) -> None:
    """List the albums of an index with the number of their images.

    Examples:

        diptych album list photos.diptych
    """
    from diptych.index.albums import album_store

    with _opened(index) as store:
        albums = album_store(store).albums()
    if as_json:
        stdout.print_json(json.dumps([asdict(album) for album in albums]))
        return
    for album in albums:
        missing = f", {album.missing:,} missing" if album.missing else ""
        print_result(f"{printable(album.name)}: {_count(album.images)}{missing}")


@app.command("create")
def create_command(index: Index, name: Name) -> None:
    """Create an album.

    Examples:

        diptych album create photos.diptych Holiday
    """
    from diptych.index.albums import album_store

    with _opened(index) as store, album_store(store).edit_albums() as edit:
        edit.create(name)
    print_note(f"created {printable(name.strip())}")


@app.command("rename")
def rename_command(
    index: Index, name: Name, new: Annotated[str, typer.Argument(metavar="NEW", help="The new name.")]
) -> None:
    """Give an album another name.

    Examples:

        diptych album rename photos.diptych Holiday "Holiday 2025"
    """
    from diptych.index.albums import album_store, find_album

    with _opened(index) as store:
        album = find_album(store, name)
        with album_store(store).edit_albums() as edit:
            edit.rename(album, new)
    print_note(f"renamed {printable(name)} to {printable(new.strip())}")


@app.command("delete")
def delete_command(index: Index, name: Name) -> None:
    """Delete an album; its images stay in the index.

    Examples:

        diptych album delete photos.diptych Holiday
    """
    from diptych.index.albums import album_store, find_album

    with _opened(index) as store:
        album = find_album(store, name)
        with album_store(store).edit_albums() as edit:
            edit.delete(album)
    print_note(f"deleted {printable(name)}; its images stay in the index")


@app.command("add")
def add_command(index: Index, name: Name, images: Images) -> None:
    """Add images to an album.

    Examples:

        diptych album add photos.diptych Holiday 17 23

        diptych album add photos.diptych Favourites ~/Pictures/beach.jpg
    """
    _change(index, name, images, add=True)


@app.command("remove")
def remove_command(index: Index, name: Name, images: Images) -> None:
    """Remove images from an album; they stay in the index.

    Examples:

        diptych album remove photos.diptych Holiday 17
    """
    _change(index, name, images, add=False)


@app.command("paths")
def paths_command(
    index: Index,
    name: Name,
    null: Annotated[bool, typer.Option("--null", "-0", help="Separate paths by NUL, for `xargs -0`.")] = False,
) -> None:
    """Print the absolute paths of the files in an album.

    Examples:

        diptych album paths photos.diptych Favourites -0 | xargs -0 cp -t best
    """
    from diptych.cli.search_paths import write_paths
    from diptych.index.albums import find_album
    from diptych.index.entries import Filters

    with _opened(index) as store:
        ids = store.matching("image", Filters(album=find_album(store, name)))
        write_paths(store.entries(ids), "\0" if null else "\n")


def _change(index: str, name: str, images: list[str], *, add: bool) -> None:
    from diptych.index.albums import album_store, find_album

    with _opened(index) as store:
        album = find_album(store, name)
        ids = _ids(store, images)
        with album_store(store).edit_albums() as edit:
            changed = (edit.add if add else edit.remove)(album, ids)
    done = f"added {_count(changed)} to" if add else f"removed {_count(changed)} from"
    same = len(set(ids)) - changed
    was = "in it already" if add else "not in it"
    print_note(f"{done} {printable(name)}" + (f"; {same:,} {'was' if same == 1 else 'were'} {was}" if same else ""))


def _ids(store: IndexStore, images: list[str]) -> list[int]:
    """The ids of images that are named by ids, paths or keys."""
    from diptych.errors import NotFoundError
    from diptych.index.albums import album_store

    numbers = {image: int(image) for image in images if image.isascii() and image.isdecimal() and len(image) < 19}
    keys = {image: _stored_path(store.spec, image) for image in images}
    found = album_store(store).ids_of([key for image, key in keys.items() if image not in numbers])
    for image, key in keys.items():
        if image not in numbers and key not in found:
            raise NotFoundError(f"{printable(image)}: not an image of this index; name an id, a path or a key")
    return [numbers[image] if image in numbers else found[keys[image]] for image in images]


def _stored_path(spec: IndexSpec, image: str) -> str:
    """The path of a file as the index stores it; anything else as it is."""
    path = Path(image).absolute()
    named = spec.folders or ((("", spec.root),) if spec.root is not None else ())
    for name, folder in named:
        if path.is_relative_to(folder):
            return "/".join(filter(None, (name, path.relative_to(folder).as_posix())))
    return image


@contextmanager
def _opened(index: str) -> Iterator[IndexStore]:
    from diptych.index.search import open_store

    store = open_store(index_of(index))
    try:
        yield store
    finally:
        store.close()


def _count(images: int) -> str:
    return "1 image" if images == 1 else f"{images:,} images"
