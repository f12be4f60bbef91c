"""The scripts that are written without spaces between words."""

__all__ = ["UNSPACED"]

UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese, as the inside of a regular expression's brackets."""
