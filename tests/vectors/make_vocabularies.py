"""Writes vocabularies.jsonl: small vocabularies trained on this project's LICENSE, and how the engines that they were
made for tokenize texts with them. First a line for a vocabulary (keys as in a GGUF file, without "tokenizer.ggml."),
then its lines {"text", "ids"}.

    pip install sentencepiece tokenizers
    python tests/vectors/make_vocabularies.py > tests/vectors/vocabularies.jsonl
"""
import io
import json
import os
import random
import sentencepiece
import tokenizers
from tokenizers import pre_tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
LICENSE = open(os.path.join(HERE, "../../LICENSE"), encoding="utf-8").read()
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORDS = r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def texts(seed):
    """Stretches of the text it was trained on, and mixtures it was not."""
    rng = random.Random(seed)
    alphabet = list("  the of and Licensor copyright NOTICE 12345 \n\t'\"{}()\u00e9\u65e5\u672c\U0001f3ac")
    out = ["", " ", "  ", "a", " a", "the  the", "don't WE'LL", "\n\n\n", "x\n \ny", "na\u00efve \u65e5\u672c\u8a9e"]
    for _ in range(40):
        at = rng.randrange(len(LICENSE))
        out.append(LICENSE[at:at + rng.randrange(1, 120)])
        out.append("".join(rng.choices(alphabet, k=rng.randrange(1, 50))))
    out.append(LICENSE[:3000].replace("\n", " ") + "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
    return out


def emit(vocabulary, encode, seed):
    print(json.dumps(vocabulary))
    for text in texts(seed):
        print(json.dumps({"text": text, "ids": encode(text)}))


def sentencepiece_vocabulary(prefix, across):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LICENSE.split("\n")), model_writer=model, model_type="bpe", vocab_size=700,
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True, split_by_whitespace=not across, add_dummy_prefix=prefix,
        user_defined_symbols=["\n\n"], minloglevel=2)
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(sp.vocab_size())
    kinds = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else
             4 if sp.id_to_piece(i) == "\n\n" else 1 for i in ids]
    emit({"vocabulary": f"sentencepiece prefix={prefix} across={across}", "model": "llama", "space_prefix": prefix,
          "tokens": [sp.id_to_piece(i) for i in ids], "scores": [sp.get_score(i) for i in ids], "token_type": kinds,
          "bos_token_id": sp.bos_id(), "eos_token_id": sp.eos_id(), "unknown_token_id": sp.unk_id()},
         lambda text: sp.encode(text), 1 if prefix else 2)


def bpe_vocabulary(pre, pattern, ignore_merges):
    t = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=ignore_merges))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)])
    t.train_from_iterator([LICENSE], tokenizers.trainers.BpeTrainer(
        vocab_size=600, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(t.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    emit({"vocabulary": f"BPE {pre}", "model": "gpt2", "pre": pre, "tokens": tokens, "merges": merges,
          "token_type": [1] * len(tokens)}, lambda text: t.encode(text, add_special_tokens=False).ids, 3)


sentencepiece_vocabulary(True, False)
sentencepiece_vocabulary(False, False)
sentencepiece_vocabulary(False, True)
bpe_vocabulary("llama-bpe", SUFFIX + WORDS + r"\p{N}{1,3}" + REST, True)
bpe_vocabulary("qwen2", SUFFIX + WORDS + r"\p{N}" + REST, False)
