"""From a directory of safetensors to a model on its device, hashed on the way."""
