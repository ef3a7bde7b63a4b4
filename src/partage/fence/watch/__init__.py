"""The watch: what the driver says that processes hold, beside what their fences count.

facts      what is known at one moment: a sample
samples    how one is taken
judgement  pure: from samples to findings, confirmed over time
remedies   what is done about one
"""
