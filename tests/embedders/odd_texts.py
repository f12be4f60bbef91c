"""Texts of all kinds and lengths, which every form of a model reads alike."""

STORY = "We rented a boat, rowed to the island and found the café closed; the ferry back cost 14.50 euros. "
TEXTS = [
    "", " ", "\n\t", "a", "ok", "OK", ".", "?!", "4471", "3.14159", "don't", "state-of-the-art", "e\u0301 é ﬁ ﬀ",
    "ÄÖÜ straße", "My locker code is 4471.", "What is my locker code?", "https://example.org/a?b=c&d=%20",
    "def f(x): return x ** 2",
    "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467 the family \U0001f1f5\U0001f1f9",
    "שלום עולם", "مرحبا بالعالم 12 ٣٤",
    "日本語の文章です。", "한국어 문장", "привет, мир", "a\ud800b", "\x00 null \x07 bell", "<|endoftext|> <s> </s>",
    "[CLS] [SEP] [MASK] [PAD] [UNK]", "x" * 99, "x" * 101, "word " * 253, "word " * 254, "word " * 255, "word " * 600,
    "竹" * 300, STORY, STORY * 6, STORY * 30, "1 2 3 4 5 6 7 8 9 " * 40,
    "A\u202eb\u202cc", "\ufeffbom", "tab\tand\r\nlines\n\n",
]  # fmt: skip
