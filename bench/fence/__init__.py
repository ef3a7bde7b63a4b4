"""What the fence costs a program, and how well it shares out a card.

``make bench-fence`` runs one C client, direct and fenced, on the simulated driver. What is measured
is the fence: on a real card the driver's own calls take longer, and kernels that run at the same
time disturb each other in ways that the simulated card does not know.
"""
