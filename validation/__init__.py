"""Experiments on tables with known truth (`gcig.validity`): what finds what, and do intervals cover?"""
