"""Pure ASGI middleware: nothing here hides a client that hangs up."""
