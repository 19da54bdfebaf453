"""Writes pieces.jsonl: how each pre-tokenizer's published pattern cuts texts, by the regex package (an engine that is
not ours). Patterns are those of the models' tokenizer.json; a list is applied one after another, each to the pieces
of the one before. Whitespace is the Unicode property.

    pip install regex
    python tests/vectors/make_pieces.py > tests/vectors/pieces.jsonl
"""
import json
import random
import regex

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORDS = r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
REST_SLASH = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LEAD = r"[^\r\n\p{L}\p{N}]?"
PATTERNS = {
    "gpt2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "llama-bpe": [SUFFIX + WORDS + r"\p{N}{1,3}" + REST],
    "qwen2": [SUFFIX + WORDS + r"\p{N}" + REST],
    "gpt-4o": [LEAD + UPPER + "*" + LOWER + "+" + SUFFIX + "?|" + LEAD + UPPER + "+" + LOWER + "*" + SUFFIX +
               r"?|\p{N}{1,3}" + REST_SLASH],
    "tekken": [LEAD + UPPER + "*" + LOWER + "+|" + LEAD + UPPER + "+" + LOWER + r"*|\p{N}" + REST_SLASH],
}
TEXTS = [
    "Hello world! 123", "it's we're I'VE they'll don't 'tis", "  two  12 spaces 3  ", "a\n\n b\r\n\r\n  c \n",
    "3.14159 and 1,000,000\t\t x", "CamelCaseHTTPServer x/y//z", "na\u00efve caf\u00e9 \u00c5ngstr\u00f6m",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8 2024\u5e74", "\u00a0nbsp\u2003em\u3000wide\u0085nel",
    "\u180evowel separator", "e\u0301 combining \u0301", "\u2167 \u00bd \u0663 \u00b2", "x = {'k': [1,2]};  // ok\n",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f3ac!", "'S'T \u017f's", " \n \n x", "\u01c5ungla \u02b0mod",
]
ALPHABET = list("aAbZ'stdmlvre019 .,/-\n\r\t\u00e9\u00c9\u65e5\u0301\u00a0\u2003\u00bd\u01c5\u02b0\U0001f3ac_")


def cut(patterns, text):
    pieces = [text]
    for pattern in patterns:
        out = []
        for piece in pieces:
            at = 0
            for m in regex.finditer(pattern, piece):
                out += [p for p in (piece[at:m.start()], m.group()) if p]
                at = m.end()
            out += [piece[at:]] if piece[at:] else []
        pieces = out
    return pieces


random.seed(20240607)
texts = TEXTS + ["".join(random.choices(ALPHABET, k=random.randint(1, 40))) for _ in range(60)]
for pre, patterns in PATTERNS.items():
    for text in texts:
        print(json.dumps({"pre": pre, "text": text, "pieces": cut(patterns, text)}))
