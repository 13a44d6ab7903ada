"""What the container of a video says: the day it was taken, the camera and the place; and how its times are written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime

from diptych.data.header import Header, camera_name, capture_day, place

# Keys of Apple and Android; the local day of a recording is preferred to its moment in universal time.
_LOCAL_DAYS = ("com.apple.quicktime.creationdate", "DateTimeOriginal", "date")
_MOMENTS = ("creation_time",)
_MAKERS = ("com.apple.quicktime.make", "com.android.manufacturer", "make")
_MODELS = ("com.apple.quicktime.model", "com.android.model", "model")
_PLACES = ("com.apple.quicktime.location.ISO6709", "location", "location-eng")

_UNSET_BEFORE = "1980"  # clocks of cameras that were never set begin in 1904 or 1970
_PLACE = re.compile(r"\s*([+-]\d{1,2}(?:\.\d+)?)([+-]\d{1,3}(?:\.\d+)?)")


def header_of(metadata: Mapping[str, str]) -> Header:
    """The header of a video from the metadata of its container, still without a size."""
    spot = _PLACE.match(_first(metadata, _PLACES) or "")
    latitude, longitude = place(float(spot[1]), float(spot[2])) if spot else (None, None)
    camera = camera_name(_first(metadata, _MAKERS), _first(metadata, _MODELS))
    return Header(0, 0, _day(metadata), camera, latitude, longitude)


def clock(seconds: float) -> str:
    """A time of a video as players show it: 0:12 or 1:01:05."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _day(metadata: Mapping[str, str]) -> str | None:
    days = [capture_day(metadata[key]) for key in _LOCAL_DAYS if key in metadata]
    days += [_local_day(metadata[key]) for key in _MOMENTS if key in metadata]
    return next((day for day in days if day is not None and day >= _UNSET_BEFORE), None)


def _local_day(moment: str) -> str | None:
    """The day of a moment, which is in universal time if it says nothing else, where this machine is."""
    with suppress(ValueError, OverflowError, OSError):
        parsed = datetime.fromisoformat(moment.strip().replace("Z", "+00:00"))
        return parsed.astimezone().date().isoformat()
    return capture_day(moment)


def _first(metadata: Mapping[str, str], keys: tuple[str, ...]) -> str | None:
    return next((metadata[key] for key in keys if metadata.get(key)), None)
