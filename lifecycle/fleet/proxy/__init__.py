"""HAProxy in front of several replicas: its configuration, its process, its runtime socket."""
