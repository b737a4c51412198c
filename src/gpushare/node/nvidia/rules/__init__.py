"""The decisions of `gpushare node --sell=gpus`, from data to data: no file, no clock, no chance, no log."""
