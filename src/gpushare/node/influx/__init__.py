"""Writes what the GPUs and the node do to InfluxDB, with the database, measurements and fields of KETI's collector.

Only with `--influx URL`. Nothing waits for it: points go into a buffer (`buffer`), and a task of its own (`writer`)
sends them. A server that is away costs a connection attempt now and then, and after ten minutes the oldest points.
"""
