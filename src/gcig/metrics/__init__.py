"""Metrics of utility, of outcome fairness and of procedural fairness."""
