"""Small videos, drawn by tests: each scene is a colour, and a green corner says where the top left is."""

import av
import numpy as np

RATE = 10


def video(
    path, scenes, *, seconds=5, size=(96, 64), codec="libx264", gop=10, rotation=None, metadata=None, container=None
):
    """Write a video of scenes in these colours, each so many seconds long."""
    with av.open(str(path), "w", format=container, options={"movflags": "use_metadata_tags+faststart"}) as file:
        file.metadata.update(metadata or {})
        stream = file.add_stream(codec, rate=RATE, options={"sc_threshold": "0"} if codec == "libx264" else {})
        stream.width, stream.height = size
        stream.pix_fmt, stream.gop_size = "yuv420p", gop
        if rotation is not None:
            stream.set_display_rotation(rotation)
        for colour in scenes:
            picture = np.full((size[1], size[0], 3), colour, np.uint8)
            picture[: size[1] // 4, : size[0] // 4] = (0, 255, 0)
            for _ in range(seconds * RATE):
                file.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        file.mux(stream.encode())
    return path


def sound(path):
    """Write a file with the ending of a video, with sound only."""
    with av.open(str(path), "w", format="mp4") as file:
        stream = file.add_stream("aac", rate=16000)
        silence = np.zeros((1, 1024), np.float32)
        for number in range(20):
            frame = av.AudioFrame.from_ndarray(silence, format="fltp", layout="mono")
            frame.sample_rate, frame.pts = 16000, 1024 * number
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    return path
