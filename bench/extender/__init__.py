"""The extender in processes of its own, made ready to be measured."""
