"""The client that needs no Spark: opens a cluster, reads and writes. Source, sink and command line use it."""
