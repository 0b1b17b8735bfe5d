"""`demo --judge`: rollouts scored by more models than there is room for, placed by hand and by the scheduler."""
