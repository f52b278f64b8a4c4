"""From sketches and canary answers to verdicts."""
