"""Record plane: content-addressed weights, versions, aliases and the audit log."""
