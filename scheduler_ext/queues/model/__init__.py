"""Vocabulary of queues: pods that wait for quota or for their gang, gangs, and the rows that people read."""
