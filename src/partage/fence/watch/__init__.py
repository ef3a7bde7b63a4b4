"""The watch: what the driver says that processes hold, beside what their fences count.

samples    what is known at one moment
sampler    how a sample is taken
escapes    what a tenant has beyond its fence: a finding
judgement  pure: from samples to findings, confirmed over time
remedies   what is done about a finding
"""
