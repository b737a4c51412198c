"""What gpushare costs: each hot path with a budget, in CPU time, because machines are noisy and clocks on walls lie."""
