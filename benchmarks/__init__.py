"""One program per claim, each against a real peer, each printing one JSON line last."""
