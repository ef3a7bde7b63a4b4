"""What kube-scheduler and people ask the extender: filter, prioritize, preempt, bind, explain."""
