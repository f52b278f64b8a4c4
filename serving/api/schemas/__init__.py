"""What clients send and what they get, in OpenAI's shapes."""
