"""From messages to token ids and back, without torch: tokenizer, chat template, stop strings."""
