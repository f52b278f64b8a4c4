"""The machine under the replicas: look at it, watch its GPUs, bring a lost driver back."""
