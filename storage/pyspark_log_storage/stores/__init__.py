"""Stores: folders, buckets and fsspec's file systems behind one interface, their credentials, faults and errors."""
