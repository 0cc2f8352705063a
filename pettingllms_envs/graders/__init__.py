"""Verdicts on programs and on answers: functions over the sandbox, the same from threads, processes and under load."""
