"""Writes quant.txt: for each tensor type, random blocks (fixed seed) and the f32 values that the gguf package's own
dequantisation gives, as hexadecimal: name, blocks, values (each the bits of an f32).

    pip install gguf numpy
    python tests/vectors/make_quant.py > tests/vectors/quant.txt
"""
import numpy as np
import gguf
from gguf import GGMLQuantizationType as T

# Offsets of the half-precision scales in a block: random bits there would be NaN or huge.
SCALES = {
    T.F32: [], T.F16: [], T.BF16: [], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0],
    T.IQ4_NL: [0], T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_XS: [0],
}

rng = np.random.default_rng(20240607)
for kind, scales in SCALES.items():
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    count = 8 if elements == 1 else 2 if elements == 32 else 1
    if elements == 1:
        values = rng.standard_normal(count).astype(np.float32)
        values[0], values[1] = 0.0, np.float32(2.0**-20)  # zero, and a subnormal half
        data = gguf.quants.quantize(values, kind).view(np.uint8).reshape(count, size)
    else:
        data = rng.integers(0, 256, (count, size), dtype=np.uint8)
        for offset in scales:
            halves = (rng.standard_normal(count) * 0.05).astype(np.float16)
            data[:, offset:offset + 2] = halves.view(np.uint8).reshape(count, 2)
    typed = data.reshape(-1).view(np.float32 if kind == T.F32 else np.float16 if kind == T.F16 else np.uint8)
    out = np.asarray(gguf.quants.dequantize(typed, kind)).reshape(-1).astype("<f4")
    print(kind.name, data.tobytes().hex(), "".join(f"{v:08x}" for v in out.view("<u4")))
