"""What the extender works out while schedulers are answered, in short steps and threads: figures of the whole cluster,
and what policies learn."""
