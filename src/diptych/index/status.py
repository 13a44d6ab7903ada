"""The state of an index: contents, model, source, storage and problems."""

from __future__ import annotations

from typing import Any

from diptych.index import ivf, vector_cache
from diptych.index.backend import IndexStore
from diptych.index.vectors import STORAGES


def status(store: IndexStore) -> dict[str, Any]:
    """The state of an index as JSON; the names of the fields do not change."""
    spec = store.spec
    with store.reading():
        cost = store.meta("storage_cost") or {}
        counts = store.counts()
        return {
            "file": store.address,
            "bytes": store.bytes_used(),
            "model": spec.model,
            "identity": spec.identity,
            "quality": spec.quality,
            "source": spec.source,
            "folders": [{"name": name, "path": path} for name, path in spec.folders],
            "ignored_patterns": list(spec.selection.ignored),
            "follows_links": spec.selection.follow_links,
            "files": store.meta("files"),
            "images": counts["image"],
            "texts": counts["text"],
            "size": spec.size,
            "rescores": spec.rescores,
            "storage": spec.storage,
            "reads_words": bool(store.meta("ocr")),
            "storage_cost": {name: cost[name] for name in STORAGES if name in cost},
            "measured_with": cost.get("of", 0),
            "synced": store.meta("synced"),
            "complete": not store.meta("unfinished"),
            "caches": [*vector_cache.describe(store), *ivf.describe(store)],
            "problems": [{"key": key, "reason": reason} for key, reason in store.problems()],
        }
