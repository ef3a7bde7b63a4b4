"""What the node side and the tenants share on disk: limits, regions and seats, under one root."""
