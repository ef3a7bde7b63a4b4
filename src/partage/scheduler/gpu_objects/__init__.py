"""GPU objects: the cards of the fleet with their tenants, for `kubectl get gpu`."""
