"""The production scale decision on made-up load: traces, a model of the fleet, and its plots."""
