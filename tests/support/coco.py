"""A stand-in for the package `eccv_caption`, with few ids, and data in the layout of COCO that has them."""

import json

import numpy as np

FIRST_IMAGE, FIRST_TEXT = 391895, 770337


class Coco:
    """Images with COCO's ids, each with some captions in the order of the folds, and random further positives."""

    def __init__(self, images=10, captions=2, seed=0):
        random = np.random.default_rng(seed)
        self.images = [FIRST_IMAGE + 3 * number for number in random.permutation(images).tolist()]
        self.texts = [FIRST_TEXT + 7 * number for number in random.permutation(images * captions).tolist()]
        self.own = {text: self.images[number // captions] for number, text in enumerate(self.texts)}
        self.lists = {"original": self._lists(self.images, self.texts, random, extra=0)}
        self.lists["cxc"] = self._lists(self.images, self.texts[1:], random, extra=3)
        self.lists["eccv"] = self._lists(self.images[::2], self.texts[::3], random, extra=4)
        self.lists["eccv"][0][self.images[0]].append(FIRST_TEXT - 1)  # a caption that is not searched

    def _lists(self, images, texts, random, extra):
        """The positives of images and of texts, at least their own."""

        def more(ids):
            return random.choice(ids, random.integers(extra + 1)).tolist()

        by_image = {
            image: [text for text, own in self.own.items() if own == image] + more(self.texts) for image in images
        }
        return by_image, {text: [self.own[text], *more(self.images)] for text in texts}

    def write_package(self, folder):
        """The files of the package; `folder` is to be searched for modules."""
        data = folder / "eccv_caption" / "data"
        data.mkdir(parents=True)
        (data.parent / "__init__.py").write_text("import warnings\nwarnings.warn('no ujson')\n")
        for name, (by_image, by_text) in self.lists.items():
            (data / f"{name}_image_to_caption.json").write_text(json.dumps(by_image))
            (data / f"{name}_caption_to_image.json").write_text(json.dumps(by_text))
        np.save(data / "coco_test_ids.npy", np.array(self.texts))

    def karpathy(self, split="test"):
        """Karpathy's JSON of these images in order of their ids, between others, and with further captions."""
        entries = [_entry(1, "train", [1]), _entry(2, split, [2, 3])]
        for image in sorted(self.images):
            texts = [text for text, own in self.own.items() if own == image]
            entries.append(_entry(image, split, [texts[0], FIRST_TEXT - image, *texts[1:]]))
        return {"images": entries, "dataset": "coco"}


def _entry(image, split, texts):
    return {
        "filepath": "val2014",
        "filename": f"COCO_val2014_{image:012}.jpg",
        "split": split,
        "sentences": [{"raw": f"a red circle and text {text}", "sentid": text} for text in texts],
    }
