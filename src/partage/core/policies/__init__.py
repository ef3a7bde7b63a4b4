"""Policies: how to choose among what fits.

A policy rates cards (which card of a node) and nodes (which node of the fleet); lower is better.
Both are pure functions of the state, so the fleet may keep the answers and ask again only about
nodes that changed.
"""
