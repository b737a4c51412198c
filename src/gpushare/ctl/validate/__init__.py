"""`gpushare validate`: how the checks of nodes went, for people and programs. The checks are in `gpushare.validate`."""
