"""Attention that reads k keys a query, and the selectors that choose them: which learn from the task alone?"""
