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


# What BERT's normaliser treats apart: accents, cases of two code points, ideographs, Hangul, white space, control
# and format characters, punctuation of all kinds, marks that are letters, long words, names of control tokens.
WORDS = [
    "Caf\u00e9 NA\u00cfVE r\u00e9sum\u00e9 e\u0301 \u0130stanbul \u00dcber stra\u00dfe \u1e9e",
    "\u65e5\u672c\u8a9e the\u65e5license \ud55c\uad6d\uc5b4 \uf900 \u3042\u30a2",
    "a\u00a0b\u2003c\u3000d\u2028e\u2029f\u200bg\u00adh\ufeffi\u0000j\u0085k\u000bl",
    "it's \u00abquoted\u00bb \u2014 \u201cno\u201d \u00bfwhat? $5 +a=b^c~d|e`f \u20ac\u00a3 \u2122 a\u037eb \u30fb",
    "[CLS] [SEP] [UNK] [MASK] ##ing \u2581the the\u2581license the[SEP]license",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0627\u0644\u0639\u0631\u0628\u064e \u05e9\u05c1 \u03a3\u03a3\u03c2 \ufb01 \u212a \u2126",
    "x" * 100 + " " + "x" * 101 + " " + "licensor" * 12 + " " + "licensor" * 13,
    "\U0001f600 thumbs\U0001f44d\U0001f3fd \U0001d400 \ufffd \ue000 \u0378 \U00020000x\U0002b740",
]


def wordpiece_vocabulary(lowercase):
    t = tokenizers.BertWordPieceTokenizer(lowercase=lowercase)
    t.train_from_iterator([LICENSE] + WORDS * 3, vocab_size=700, show_progress=False, min_frequency=2)
    tokens = sorted(t.get_vocab(), key=t.get_vocab().get)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

    def piece(token):
        return token if token in special else token[2:] if token.startswith("##") else "\u2581" + token
    kinds = [2 if v == "[UNK]" else 3 if v in special else 1 for v in tokens]
    # names of control tokens are plain text here
    plain = tokenizers.Tokenizer(tokenizers.models.WordPiece(t.get_vocab(), unk_token="[UNK]"))
    plain.normalizer, plain.pre_tokenizer = t.normalizer, t.pre_tokenizer
    emit({"vocabulary": f"WordPiece lowercase={lowercase}", "model": "bert", "tokens": [piece(v) for v in tokens],
          "token_type": kinds}, lambda text: plain.encode(text, add_special_tokens=False).ids, 4)
    for text in WORDS:
        print(json.dumps({"text": text, "ids": plain.encode(text, add_special_tokens=False).ids}))


sentencepiece_vocabulary(True, False)
sentencepiece_vocabulary(False, False)
sentencepiece_vocabulary(False, True)
bpe_vocabulary("llama-bpe", SUFFIX + WORDS + r"\p{N}{1,3}" + REST, True)
bpe_vocabulary("qwen2", SUFFIX + WORDS + r"\p{N}" + REST, False)
wordpiece_vocabulary(True)
wordpiece_vocabulary(False)
