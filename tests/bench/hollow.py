"""A model of the right shape with nothing in it: for timing on hosts that the real file cannot be brought to.

    python3 hollow.py pack MODEL.gguf OUT     the file's metadata (tokenizer, shapes), without its weights: a few MB
    python3 hollow.py fill OUT MODEL.gguf     a whole GGUF file again: matrices of random f16, vectors of ones

Prompts and their tokens are those of the real model, answers are not. Python's own library is enough.
"""
import random
import struct
import sys
import zlib

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # GGUF's plain types
STRING, ARRAY = 8, 9
F32, F16 = 0, 1
ALIGN = 32


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values[0]

    def text(self):
        n = self.take("Q")
        self.at += n
        return self.data[self.at - n : self.at]

    def skip(self, kind):
        if kind == STRING:
            self.text()
        elif kind == ARRAY:
            inner, n = self.take("I"), self.take("Q")
            if inner in SIZES:
                self.at += SIZES[inner] * n
            else:
                for _ in range(n):
                    self.skip(inner)
        else:
            self.at += SIZES[kind]


def read(data):
    """(version, count and bytes of the key-value pairs without the alignment, tensors as (name, dims))"""
    r = Reader(data)
    if r.take("I") != 0x46554747:
        sys.exit("hollow.py: not a GGUF file")
    version, tensors, pairs = r.take("I"), r.take("Q"), r.take("Q")
    kept = []
    for _ in range(pairs):
        begin = r.at
        key = r.text()
        r.skip(r.take("I"))
        if key != b"general.alignment":
            kept.append(data[begin : r.at])
    found = []
    for _ in range(tensors):
        name = r.text()
        dims = [r.take("Q") for _ in range(r.take("I"))]
        r.take("I"), r.take("Q")
        found.append((name, dims))
    return version, kept, found


def count(dims):
    n = 1
    for d in dims:
        n *= d
    return n


def size(dims):
    return count(dims) * (4 if len(dims) < 2 else 2)


def header(version, kept, tensors):
    out = [struct.pack("<IIQQ", 0x46554747, version, len(tensors), len(kept)), *kept]
    at = 0
    for name, dims in tensors:
        out.append(struct.pack("<Q", len(name)) + name + struct.pack("<I", len(dims)))
        out.append(struct.pack("<%dQ" % len(dims), *dims))
        out.append(struct.pack("<IQ", F32 if len(dims) < 2 else F16, at))
        at += (size(dims) + ALIGN - 1) // ALIGN * ALIGN
    return b"".join(out)


def pad(out):
    out.write(b"\0" * (-out.tell() % ALIGN))


def pack(model, packed):
    with open(model, "rb") as f:
        data = f.read()
    with open(packed, "wb") as out:
        out.write(zlib.compress(header(*read(data)), 9))


def fill(packed, model):
    with open(packed, "rb") as f:
        data = zlib.decompress(f.read())
    version, kept, tensors = read(data)
    draw = random.Random(1)
    # of odd length, so that no two rows begin alike
    noise = b"".join(struct.pack("<e", draw.uniform(-0.06, 0.06)) for _ in range(262147))
    with open(model, "wb") as out:
        out.write(header(version, kept, tensors))
        for _, dims in tensors:
            pad(out)
            left = size(dims)
            if len(dims) < 2:
                out.write(struct.pack("<f", 1.0) * count(dims))
                continue
            skip = draw.randrange(len(noise) // 2) * 2
            while left > 0:
                piece = noise[skip : skip + left]
                out.write(piece)
                left, skip = left - len(piece), 0
        pad(out)


if len(sys.argv) != 4 or sys.argv[1] not in ("pack", "fill"):
    sys.exit(__doc__)
(pack if sys.argv[1] == "pack" else fill)(sys.argv[2], sys.argv[3])
