"""The fleet: processes on this host and the supervisors that run replicas as such."""
