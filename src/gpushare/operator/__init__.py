"""`gpushare operator`: makes a cluster what one ClusterPolicy says, and keeps it so."""
