"""What images, sound, video and files cost in tokens, where only their kind is known."""

LOW_IMAGE_TOKENS = 85
"""An image requested in low detail (OpenAI, "Images and vision": 85 tokens whatever its size)."""

IMAGE_TOKENS = 85 + 6 * 170
"""An image: six of OpenAI's tiles (85 tokens and 170 a tile, same page), enough for any picture up to 16:9 in high
detail. Gemini takes 258 a tile of 768 pixels, that is 1,032 for four; Anthropic width * height / 750, that is 1,106 for
1080 x 768."""

AUDIO_TOKENS = 60 * 32
"""A minute of sound (Gemini, "Understand and count tokens": 32 tokens a second; OpenAI takes 10 a second)."""

VIDEO_TOKENS = 10 * 263
"""Ten seconds of video (Gemini, same page: 263 tokens a second)."""

FILE_TOKENS = 3_000
"""A file: a dense page by Anthropic's figure ("PDF support": 1,500 to 3,000 tokens a page), eleven by Gemini's 258."""
