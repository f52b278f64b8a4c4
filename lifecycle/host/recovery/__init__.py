"""Brings a host with a broken GPU driver back, rung by rung, or says why it can't."""
